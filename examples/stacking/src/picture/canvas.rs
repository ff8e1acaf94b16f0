//! A grid of coloured pixels to draw upon.

use super::font;

/// Red, green, blue.
pub(crate) type Colour = [u8; 3];

/// Screen pixels per pixel of the font.
const TEXT_ZOOM: usize = 2;

/// A picture in the making; (0, 0) is its upper left pixel. What is drawn outside is left out.
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    /// A canvas of one colour.
    pub(crate) fn new(width: usize, height: usize, paper: Colour) -> Canvas {
        Canvas { width, height, pixels: vec![paper; width * height] }
    }

    /// Fills a rectangle, given by its left and top, and its width and height.
    pub(crate) fn fill(
        &mut self,
        [left, top]: [usize; 2],
        [width, height]: [usize; 2],
        colour: Colour,
    ) {
        let right = (left + width).min(self.width);
        if left < right {
            for row in top..(top + height).min(self.height) {
                self.pixels[row * self.width + left..row * self.width + right].fill(colour);
            }
        }
    }

    /// Fills a square about a point.
    pub(crate) fn dot(&mut self, [x, y]: [f64; 2], side: usize, colour: Colour) {
        let start = |coordinate: f64| (coordinate - (side / 2) as f64).round().max(0.0) as usize;
        self.fill([start(x), start(y)], [side, side], colour);
    }

    /// Draws a straight line, two pixels thick.
    pub(crate) fn line(&mut self, from: [f64; 2], to: [f64; 2], colour: Colour) {
        let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
        // The ends lie in the picture, so that its sides bound the number of steps.
        let steps = dx.abs().max(dy.abs()).min((self.width + self.height) as f64).ceil().max(1.0);
        for step in 0..=steps as usize {
            let share = step as f64 / steps;
            self.dot([from[0] + share * dx, from[1] + share * dy], 2, colour);
        }
    }

    /// Writes a text, given by its left and top.
    pub(crate) fn write(&mut self, [left, top]: [usize; 2], text: &str, ink: Colour) {
        for (place, character) in text.chars().enumerate() {
            for (row, bits) in font::glyph(character).into_iter().enumerate() {
                let columns = (0..font::WIDTH_PX).filter(|column| bits >> (4 - column) & 1 == 1);
                for column in columns {
                    let x = left + (place * font::ADVANCE_PX + column) * TEXT_ZOOM;
                    self.fill([x, top + row * TEXT_ZOOM], [TEXT_ZOOM, TEXT_ZOOM], ink);
                }
            }
        }
    }

    /// The PNG file.
    pub(crate) fn encode(self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(bytes)
    }
}

/// Height of a line of text.
pub(crate) const TEXT_HEIGHT_PX: usize = font::HEIGHT_PX * TEXT_ZOOM;

/// The width of a text.
pub(crate) fn text_width_px(text: &str) -> usize {
    text.chars().count() * font::ADVANCE_PX * TEXT_ZOOM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_over_the_edge_is_cut_off() {
        let (paper, ink) = ([0; 3], [255; 3]);
        let mut canvas = Canvas::new(4, 3, paper);
        canvas.fill([9, 0], [2, 2], ink);
        canvas.fill([0, 9], [2, 2], ink);
        assert_eq!(canvas.pixels, [paper; 12]);
        canvas.fill([2, 2], [10, 10], ink);
        assert_eq!(canvas.pixels[9..], [paper, ink, ink]);
        canvas.write([1, 1], "overlong text", ink);
        canvas.line([-5.0, -1e9], [1e9, f64::NAN], ink);
        assert_eq!(canvas.pixels.len(), 12);
    }

    #[test]
    fn what_is_drawn_is_in_the_file() {
        let mut canvas = Canvas::new(30, 20, [1, 2, 3]);
        canvas.write([0, 0], "1", [200; 3]);
        let bytes = canvas.encode().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (30, 20));
        assert_eq!(pixels[..6], [1, 2, 3, 1, 2, 3]);
        // The digit's upper pixel is the third of its row.
        assert_eq!(pixels[12..15], [200; 3]);
    }
}
