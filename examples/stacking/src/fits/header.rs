//! FITS headers: 80-character cards in blocks of 2880 bytes (FITS standard 4.0, section 4).

/// Length of one header card.
pub(crate) const CARD_BYTES: usize = 80;
/// Headers and data are padded to a multiple of this.
pub(crate) const BLOCK_BYTES: usize = 2880;

/// Longest text in quotes that a card holds beside keyword and quotes.
const TEXT_CHARS_MAX: usize = 68;
/// The value field's width in the standard's fixed format.
const VALUE_CHARS: usize = 20;

/// What a header says wrongly, or does not say.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The bytes do not start as a FITS file does.
    #[error("not a FITS file: it does not start with 'SIMPLE  =                    T'")]
    NotFits,
    /// The header has no `END` card.
    #[error("the FITS header has no END card: the file is cut off")]
    NoEnd,
    /// A card that is needed is not there.
    #[error("the FITS header has no {0} card")]
    Missing(&'static str),
    /// A card's value is not of the kind that its keyword asks for.
    #[error("the FITS card {keyword} is '{value}', but should be {wanted}")]
    Bad { keyword: &'static str, value: String, wanted: &'static str },
}

/// A card's value as it stands in the file: its kind is decided by who asks for it.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    /// Was in quotes.
    Text(String),
    /// A number or a logical value.
    Token(String),
}

#[derive(Debug, Clone, PartialEq)]
struct Card {
    keyword: String,
    value: Value,
    comment: &'static str,
}

/// The cards of a header that carry a value, without the mandatory ones that describe the array
/// (those are read and written with the array).
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Header {
    cards: Vec<Card>,
}

impl Header {
    /// Parses the blocks of a header, up to its `END` card.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, HeaderError> {
        if !starts_as_fits(bytes) {
            return Err(HeaderError::NotFits);
        }
        let mut header = Header::default();
        for card in bytes.chunks_exact(CARD_BYTES) {
            if card.starts_with(b"END     ") {
                return Ok(header);
            }
            header.cards.extend(parse_card(card));
        }
        Err(HeaderError::NoEnd)
    }

    /// Whether a keyword has a card.
    pub(crate) fn has(&self, keyword: &str) -> bool {
        self.find(keyword).is_some()
    }

    /// A whole number.
    pub(crate) fn integer(&self, keyword: &'static str) -> Result<i64, HeaderError> {
        self.number(keyword, "a whole number", |token| token.parse().ok())
    }

    /// A finite number.
    pub(crate) fn real(&self, keyword: &'static str) -> Result<f64, HeaderError> {
        self.number(keyword, "a number", |token| {
            // FORTRAN's double precision exponents are legal in FITS.
            let number: f64 = token.replace(['D', 'd'], "E").parse().ok()?;
            number.is_finite().then_some(number)
        })
    }

    /// A finite number, or `default` where there is no such card.
    pub(crate) fn real_or(&self, keyword: &'static str, default: f64) -> Result<f64, HeaderError> {
        if self.has(keyword) { self.real(keyword) } else { Ok(default) }
    }

    /// A text, without the blanks at its end.
    pub(crate) fn text(&self, keyword: &'static str) -> Result<&str, HeaderError> {
        match self.find(keyword).ok_or(HeaderError::Missing(keyword))? {
            Value::Text(text) => Ok(text),
            Value::Token(token) => {
                Err(HeaderError::Bad { keyword, value: token.clone(), wanted: "a text in quotes" })
            }
        }
    }

    /// Appends a card with a whole number.
    pub(crate) fn push_integer(&mut self, keyword: &str, value: i64, comment: &'static str) {
        self.push(keyword, Value::Token(value.to_string()), comment);
    }

    /// Appends a card with a finite number; it is written with as many digits as give back the same
    /// number when they are read.
    pub(crate) fn push_real(&mut self, keyword: &str, value: f64, comment: &'static str) {
        debug_assert!(value.is_finite(), "{keyword} is {value}");
        self.push(keyword, Value::Token(format!("{value:?}").replace('e', "E")), comment);
    }

    /// Appends a card with a text; what does not fit a card is cut off, and a character outside of
    /// ASCII becomes a question mark, as the format knows no other.
    pub(crate) fn push_text(&mut self, keyword: &str, value: &str, comment: &'static str) {
        let ascii = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
        self.push(keyword, Value::Text(value.chars().map(ascii).collect()), comment);
    }

    /// The header's bytes for an array of 32-bit floating point numbers, `width` by `height`.
    pub(crate) fn encode(&self, width: usize, height: usize) -> Vec<u8> {
        let mut array = Header::default();
        array.push("SIMPLE", Value::Token("T".to_owned()), "conforms to the FITS standard");
        array.push_integer("BITPIX", -32, "32-bit floating point");
        array.push_integer("NAXIS", 2, "number of axes");
        array.push_integer("NAXIS1", width as i64, "pixels in a row");
        array.push_integer("NAXIS2", height as i64, "rows");
        let mut bytes = Vec::with_capacity(2 * BLOCK_BYTES);
        for card in array.cards.iter().chain(&self.cards) {
            bytes.extend_from_slice(&encode_card(card));
        }
        bytes.extend_from_slice(b"END");
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), b' ');
        bytes
    }

    fn push(&mut self, keyword: &str, value: Value, comment: &'static str) {
        debug_assert!(keyword.len() <= 8, "{keyword} is too long for a keyword");
        self.cards.push(Card { keyword: keyword.to_owned(), value, comment });
    }

    fn find(&self, keyword: &str) -> Option<&Value> {
        self.cards.iter().find(|card| card.keyword == keyword).map(|card| &card.value)
    }

    fn number<T>(
        &self,
        keyword: &'static str,
        wanted: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, HeaderError> {
        match self.find(keyword).ok_or(HeaderError::Missing(keyword))? {
            Value::Token(token) => parse(token).ok_or_else(|| HeaderError::Bad {
                keyword,
                value: token.clone(),
                wanted,
            }),
            Value::Text(text) => Err(HeaderError::Bad { keyword, value: text.clone(), wanted }),
        }
    }
}

/// Whether a file that starts with these bytes can be FITS at all.
pub(crate) fn starts_as_fits(bytes: &[u8]) -> bool {
    bytes.starts_with(b"SIMPLE  =")
        && bytes.get(9..CARD_BYTES).is_some_and(|value| {
            let value = value.split(|byte| *byte == b'/').next().unwrap_or_default();
            value.trim_ascii() == b"T"
        })
}

/// Whether a block of a header holds its `END` card.
pub(crate) fn block_ends_header(block: &[u8]) -> bool {
    block.chunks_exact(CARD_BYTES).any(|card| card.starts_with(b"END     "))
}

/// Reads a card; `None` for comments and for cards without a value.
fn parse_card(card: &[u8]) -> Option<Card> {
    let (keyword, rest) = card.split_at_checked(8)?;
    let value = rest.strip_prefix(b"= ")?;
    let keyword = String::from_utf8_lossy(keyword.trim_ascii_end()).into_owned();
    let value = String::from_utf8_lossy(value);
    let value = value.trim_start();
    let value = match value.strip_prefix('\'') {
        Some(quoted) => Value::Text(unquote(quoted)),
        None => Value::Token(value.split('/').next().unwrap_or_default().trim().to_owned()),
    };
    Some(Card { keyword, value, comment: "" })
}

/// The text up to the closing quote; two quotes stand for one.
fn unquote(quoted: &str) -> String {
    let mut text = String::new();
    let mut rest = quoted.chars();
    while let Some(next) = rest.next() {
        if next == '\'' && rest.next() != Some('\'') {
            break;
        }
        text.push(next);
    }
    text.truncate(text.trim_end().len());
    text
}

fn encode_card(card: &Card) -> [u8; CARD_BYTES] {
    let value = match &card.value {
        Value::Token(token) => format!("{token:>VALUE_CHARS$}"),
        Value::Text(text) => {
            let mut quoted = String::new();
            for c in text.chars() {
                let width = if c == '\'' { 2 } else { 1 };
                if quoted.len() + width > TEXT_CHARS_MAX {
                    break;
                }
                quoted.extend(std::iter::repeat_n(c, width));
            }
            // The standard wants at least eight characters between the quotes.
            format!("{:<VALUE_CHARS$}", format!("'{quoted:<8}'"))
        }
    };
    let separator = if card.comment.is_empty() { "" } else { " / " };
    let line = format!("{:<8}= {value}{separator}{}", card.keyword, card.comment);
    let mut bytes = [b' '; CARD_BYTES];
    for (byte, from) in bytes.iter_mut().zip(line.bytes()) {
        *byte = from;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn sample() -> Header {
        let mut header = Header::default();
        header.push_text("OBJECT", "it's a 'field'", "what was looked at");
        header.push_real("CRVAL1", 150.1234567890123, "[deg]");
        header.push_real("SMALL", -1.234567890123456e-105, "");
        header.push_integer("NCOMBINE", -42, "");
        header
    }

    #[test]
    fn cards_come_back_as_they_were_written() {
        let header = Header::parse(&sample().encode(3, 2)).unwrap();
        assert_eq!(header.text("OBJECT").unwrap(), "it's a 'field'");
        assert_eq!(header.real("CRVAL1").unwrap(), 150.1234567890123);
        assert_eq!(header.real("SMALL").unwrap(), -1.234567890123456e-105);
        assert_eq!(header.integer("NCOMBINE").unwrap(), -42);
        assert_eq!(header.integer("NAXIS2").unwrap(), 2);
        assert_eq!(header.real_or("NOT", 1.5).unwrap(), 1.5);
    }

    #[test]
    fn every_finite_number_is_read_back_exactly() {
        let mut random = Random::seeded(11, 0);
        for _ in 0..2000 {
            let number = f64::from_bits(random.bits());
            if number.is_finite() {
                let mut header = Header::default();
                header.push_real("X", number, "a comment");
                let read = Header::parse(&header.encode(1, 1)).unwrap().real("X").unwrap();
                assert_eq!(read.to_bits(), number.to_bits(), "{number:?}");
            }
        }
    }

    #[test]
    fn a_header_fills_blocks_of_ascii_text() {
        let mut header = sample();
        for _ in 0..40 {
            header.push_text("LONG", &"'é".repeat(100), "not seen");
        }
        let bytes = header.encode(100, 100);
        assert_eq!(bytes.len() % BLOCK_BYTES, 0);
        assert!(bytes.iter().all(|byte| (32..127).contains(byte)));
        assert_eq!(Header::parse(&bytes).unwrap().text("LONG").unwrap(), "'?".repeat(22) + "'");
    }

    #[test]
    fn values_of_the_wrong_kind_are_named() {
        let header = Header::parse(&sample().encode(1, 1)).unwrap();
        assert_eq!(header.real("RA"), Err(HeaderError::Missing("RA")));
        assert!(matches!(header.real("OBJECT"), Err(HeaderError::Bad { keyword: "OBJECT", .. })));
        assert!(matches!(header.integer("CRVAL1"), Err(HeaderError::Bad { .. })));
        assert!(matches!(header.text("CRVAL1"), Err(HeaderError::Bad { .. })));
    }

    #[test]
    fn fortran_exponents_and_comments_are_understood() {
        let mut bytes = sample().encode(1, 1);
        let mut put = |card: &str| {
            bytes.rotate_right(CARD_BYTES);
            bytes[..CARD_BYTES].copy_from_slice(format!("{card:<80}").as_bytes());
        };
        put("HISTORY = 'not a card with a value'");
        put("EXPTIME =  5.39D+01 / [s]");
        put("BROKEN  = 'no end of quote");
        put("INFINITE= inf");
        put("SIMPLE  = T");
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.real("EXPTIME").unwrap(), 53.9);
        assert_eq!(header.text("BROKEN").unwrap(), "no end of quote");
        assert!(header.real("INFINITE").is_err());
    }

    #[test]
    fn damaged_headers_never_panic() {
        let whole = sample().encode(3, 2);
        for round in 0..5000 {
            let mut random = Random::seeded(5, round);
            let mut bytes = whole[..random.below(whole.len() + 1)].to_vec();
            for _ in 0..random.below(40) {
                if !bytes.is_empty() {
                    let place = random.below(bytes.len().min(800));
                    bytes[place] = random.bits() as u8;
                }
            }
            if let Ok(header) = Header::parse(&bytes) {
                for keyword in ["OBJECT", "CRVAL1", "SMALL", "NCOMBINE", "NAXIS1"] {
                    let _ = (header.text(keyword), header.real(keyword), header.integer(keyword));
                }
            }
        }
    }
}
