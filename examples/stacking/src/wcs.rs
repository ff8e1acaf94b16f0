//! World coordinates: between pixels and the sky in the gnomonic (TAN) projection, as in Greisen &
//! Calabretta 2002 and Calabretta & Greisen 2002 (FITS standard 4.0, section 8).
//!
//! Pixels are counted as FITS does: the centre of the first pixel of the first row is (1, 1).

use std::fmt;

use crate::fits::header::{Header, HeaderError};

/// A direction in the sky, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SkyPosition {
    pub(crate) ra_deg: f64,
    pub(crate) dec_deg: f64,
}

impl SkyPosition {
    /// The angle to another direction, in degrees; exact for small angles too.
    pub(crate) fn separation_deg(self, other: SkyPosition) -> f64 {
        let (dec_a, dec_b) = (self.dec_deg.to_radians(), other.dec_deg.to_radians());
        let sin_half = |difference: f64| (difference / 2.0).sin();
        let across = sin_half((other.ra_deg - self.ra_deg).to_radians());
        let haversine =
            sin_half(dec_b - dec_a).powi(2) + dec_a.cos() * dec_b.cos() * across.powi(2);
        (2.0 * haversine.clamp(0.0, 1.0).sqrt().asin()).to_degrees()
    }
}

impl fmt::Display for SkyPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RA {} Dec {}", self.ra_deg, self.dec_deg)
    }
}

/// A header's world coordinates cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum WcsError {
    /// A card is missing or wrong.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Another projection, or axes in another order.
    #[error(
        "{keyword} is '{value}', but only the gnomonic projection is known: CTYPE1 = 'RA---TAN', \
         CTYPE2 = 'DEC--TAN'"
    )]
    Projection { keyword: &'static str, value: String },
    /// The native pole is turned away from the usual.
    #[error("LONPOLE is {0}, but only its usual value 180 is known")]
    NativePole(f64),
    /// The reference point's declination is not one.
    #[error("CRVAL2 is {0}, but a declination lies between -90 and 90 degrees")]
    Declination(f64),
    /// The matrix maps all pixels onto a line or a point.
    #[error("the matrix of the world coordinates (CD or CDELT and PC) is singular")]
    Singular,
}

/// How a header writes down the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixForm {
    /// `CDi_j`.
    Cd,
    /// `CDELTi` and `PCi_j`.
    PcAndCdelt,
}

/// The map between an image's pixels and the sky.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wcs {
    /// Where the plane touches the sky (`CRVAL`).
    reference: SkyPosition,
    /// The pixel there (`CRPIX`).
    reference_px: [f64; 2],
    /// Degrees in the plane per pixel (`CD`).
    matrix: [[f64; 2]; 2],
    inverse: [[f64; 2]; 2],
}

impl Wcs {
    /// A map with the plane touching the sky at `reference`, `reference_px` there, and `matrix` in
    /// degrees per pixel.
    pub(crate) fn new(
        reference: SkyPosition,
        reference_px: [f64; 2],
        matrix: [[f64; 2]; 2],
    ) -> Result<Wcs, WcsError> {
        if !(-90.0..=90.0).contains(&reference.dec_deg) {
            return Err(WcsError::Declination(reference.dec_deg));
        }
        let [[a, b], [c, d]] = matrix;
        let determinant = a * d - b * c;
        let inverse = [[d / determinant, -b / determinant], [-c / determinant, a / determinant]];
        if inverse.as_flattened().iter().any(|element| !element.is_finite()) {
            return Err(WcsError::Singular);
        }
        Ok(Wcs { reference, reference_px, matrix, inverse })
    }

    /// A map of square pixels, north turned by `rotation_deg` from up, east to the left.
    pub(crate) fn turned(
        reference: SkyPosition,
        reference_px: [f64; 2],
        scale_deg: f64,
        rotation_deg: f64,
    ) -> Result<Wcs, WcsError> {
        let (sin, cos) = rotation_deg.to_radians().sin_cos();
        let matrix = [[-scale_deg * cos, scale_deg * sin], [scale_deg * sin, scale_deg * cos]];
        Wcs::new(reference, reference_px, matrix)
    }

    /// Reads the map from a header.
    pub(crate) fn from_header(header: &Header) -> Result<Wcs, WcsError> {
        for (keyword, wanted) in [("CTYPE1", "RA---TAN"), ("CTYPE2", "DEC--TAN")] {
            let found = header.text(keyword)?;
            if found != wanted {
                return Err(WcsError::Projection { keyword, value: found.to_owned() });
            }
        }
        let native_pole_deg = header.real_or("LONPOLE", 180.0)?;
        if native_pole_deg != 180.0 {
            return Err(WcsError::NativePole(native_pole_deg));
        }
        let cd = [["CD1_1", "CD1_2"], ["CD2_1", "CD2_2"]];
        let matrix = if cd.as_flattened().iter().any(|keyword| header.has(keyword)) {
            let element = |keyword| header.real_or(keyword, 0.0);
            [[element(cd[0][0])?, element(cd[0][1])?], [element(cd[1][0])?, element(cd[1][1])?]]
        } else {
            let steps = [header.real("CDELT1")?, header.real("CDELT2")?];
            let element = |keyword, default| header.real_or(keyword, default);
            [
                [steps[0] * element("PC1_1", 1.0)?, steps[0] * element("PC1_2", 0.0)?],
                [steps[1] * element("PC2_1", 0.0)?, steps[1] * element("PC2_2", 1.0)?],
            ]
        };
        let reference =
            SkyPosition { ra_deg: header.real("CRVAL1")?, dec_deg: header.real("CRVAL2")? };
        Wcs::new(reference, [header.real("CRPIX1")?, header.real("CRPIX2")?], matrix)
    }

    /// Appends the map's cards to a header.
    pub(crate) fn push_cards(&self, header: &mut Header, form: MatrixForm) {
        header.push_text("CTYPE1", "RA---TAN", "gnomonic projection");
        header.push_text("CTYPE2", "DEC--TAN", "gnomonic projection");
        header.push_text("CUNIT1", "deg", "");
        header.push_text("CUNIT2", "deg", "");
        header.push_text("RADESYS", "ICRS", "");
        header.push_real("CRVAL1", self.reference.ra_deg, "[deg] right ascension at the reference");
        header.push_real("CRVAL2", self.reference.dec_deg, "[deg] declination at the reference");
        header.push_real("CRPIX1", self.reference_px[0], "[pix] the reference pixel's column");
        header.push_real("CRPIX2", self.reference_px[1], "[pix] the reference pixel's row");
        let [[a, b], [c, d]] = self.matrix;
        let (steps, prefix, comment) = match form {
            MatrixForm::Cd => ([1.0, 1.0], "CD", "[deg/pix]"),
            MatrixForm::PcAndCdelt => {
                // A step per axis, so that PC is a plain rotation where the pixels are square.
                let steps = [-a.hypot(c), b.hypot(d)];
                header.push_real("CDELT1", steps[0], "[deg/pix]");
                header.push_real("CDELT2", steps[1], "[deg/pix]");
                (steps, "PC", "")
            }
        };
        for (place, element, step) in
            [("1_1", a, steps[0]), ("1_2", b, steps[0]), ("2_1", c, steps[1]), ("2_2", d, steps[1])]
        {
            header.push_real(&format!("{prefix}{place}"), element / step, comment);
        }
    }

    /// The pixel coordinates of a direction; `None` for one that is a right angle or more away from
    /// the reference, which the projection does not show.
    pub(crate) fn to_pixel(&self, sky: SkyPosition) -> Option<[f64; 2]> {
        let (sin_dec, cos_dec) = sky.dec_deg.to_radians().sin_cos();
        let (sin_ref, cos_ref) = self.reference.dec_deg.to_radians().sin_cos();
        let (sin_ra, cos_ra) = (sky.ra_deg - self.reference.ra_deg).to_radians().sin_cos();
        let cos_distance = sin_ref * sin_dec + cos_ref * cos_dec * cos_ra;
        if cos_distance <= 0.0 {
            return None;
        }
        let xi = (cos_dec * sin_ra / cos_distance).to_degrees();
        let eta = ((cos_ref * sin_dec - sin_ref * cos_dec * cos_ra) / cos_distance).to_degrees();
        let [[a, b], [c, d]] = self.inverse;
        let [x, y] = self.reference_px;
        let pixel = [x + a * xi + b * eta, y + c * xi + d * eta];
        pixel.iter().all(|coordinate| coordinate.is_finite()).then_some(pixel)
    }

    /// The direction of a point given in pixel coordinates; its right ascension is in 0..360.
    pub(crate) fn to_sky(&self, pixel: [f64; 2]) -> SkyPosition {
        let (dx, dy) = (pixel[0] - self.reference_px[0], pixel[1] - self.reference_px[1]);
        let [[a, b], [c, d]] = self.matrix;
        let (xi, eta) = ((a * dx + b * dy).to_radians(), (c * dx + d * dy).to_radians());
        let (sin_ref, cos_ref) = self.reference.dec_deg.to_radians().sin_cos();
        let toward_pole = cos_ref - eta * sin_ref;
        let ra_deg = self.reference.ra_deg + xi.atan2(toward_pole).to_degrees();
        let dec_deg = (sin_ref + eta * cos_ref).atan2(xi.hypot(toward_pole)).to_degrees();
        SkyPosition { ra_deg: ra_deg.rem_euclid(360.0), dec_deg }
    }

    /// The same map for a window of the image whose first pixel was (`column` + 1, `row` + 1).
    pub(crate) fn windowed(&self, column: usize, row: usize) -> Wcs {
        let [x, y] = self.reference_px;
        Wcs { reference_px: [x - column as f64, y - row as f64], ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    type Vector = [f64; 3];

    fn vector(sky: SkyPosition) -> Vector {
        let (sin_ra, cos_ra) = sky.ra_deg.to_radians().sin_cos();
        let (sin_dec, cos_dec) = sky.dec_deg.to_radians().sin_cos();
        [cos_dec * cos_ra, cos_dec * sin_ra, sin_dec]
    }

    fn dot(a: Vector, b: Vector) -> f64 {
        a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    }

    /// The plane's coordinates by vectors: where the ray to the star meets the tangent plane.
    fn plane_by_vectors(reference: SkyPosition, sky: SkyPosition) -> [f64; 2] {
        let (sin_ra, cos_ra) = reference.ra_deg.to_radians().sin_cos();
        let (sin_dec, cos_dec) = reference.dec_deg.to_radians().sin_cos();
        let east = [-sin_ra, cos_ra, 0.0];
        let north = [-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec];
        let (star, centre) = (vector(sky), vector(reference));
        [east, north].map(|axis| (dot(star, axis) / dot(star, centre)).to_degrees())
    }

    fn random_wcs(random: &mut Random) -> Wcs {
        loop {
            let reference = SkyPosition {
                ra_deg: random.between(0.0, 360.0),
                dec_deg: random.between(-90.0, 90.0),
            };
            let reference_px = [random.between(-300.0, 600.0), random.between(-300.0, 600.0)];
            let mut element = || random.between(-1e-3, 1e-3);
            let matrix = [[element(), element()], [element(), element()]];
            let determinant = matrix[0][0] * matrix[1][1] - matrix[0][1] * matrix[1][0];
            // Maps that squeeze pixels together have no accurate inverse to be tested.
            if determinant.abs() > 1e-7 {
                return Wcs::new(reference, reference_px, matrix).unwrap();
            }
        }
    }

    #[test]
    fn pixels_come_back_through_the_sky() {
        for seed in 0..2000 {
            let mut random = Random::seeded(seed, 0);
            let wcs = random_wcs(&mut random);
            let pixel = [random.between(-1000.0, 1000.0), random.between(-1000.0, 1000.0)];
            let back = wcs.to_pixel(wcs.to_sky(pixel)).unwrap();
            let error = (back[0] - pixel[0]).hypot(back[1] - pixel[1]);
            assert!(error < 1e-6, "seed {seed}: {pixel:?} came back as {back:?} through {wcs:?}");
        }
    }

    #[test]
    fn the_projection_agrees_with_the_one_by_vectors() {
        for seed in 0..2000 {
            let mut random = Random::seeded(seed, 1);
            let wcs = random_wcs(&mut random);
            let sky = wcs.to_sky([random.between(-2e3, 2e3), random.between(-2e3, 2e3)]);
            let pixel = wcs.to_pixel(sky).unwrap();
            let plane = plane_by_vectors(wcs.reference, sky);
            let [[a, b], [c, d]] = wcs.matrix;
            let (dx, dy) = (pixel[0] - wcs.reference_px[0], pixel[1] - wcs.reference_px[1]);
            let error = (a * dx + b * dy - plane[0]).hypot(c * dx + d * dy - plane[1]);
            assert!(error < 1e-11, "seed {seed}: off by {error} degrees");
        }
    }

    #[test]
    fn pixels_agree_with_those_of_astropy() {
        // Made with astropy 8.0 (WCSLIB): reference, reference pixel, matrix, direction, its pixel.
        type Case = ([f64; 2], [f64; 2], [[f64; 2]; 2], [f64; 2], [f64; 2]);
        let cases: [Case; 8] = [
            (
                [0.001, 0.0],
                [27.911, 192.301],
                [[-0.000298610, 0.000028843], [0.000028843, 0.000298610]],
                [359.95482603, -0.15631715],
                [131.014992744, -341.142009495],
            ),
            (
                [150.1163, 2.2058],
                [118.021, 218.039],
                [[-0.000057568, 0.000081768], [0.000081768, 0.000057568]],
                [150.11810224, 2.2985983],
                [866.441990569, 766.981028950],
            ),
            (
                [30.0, 89.9],
                [31.341, 278.242],
                [[-0.000299712, -0.000013147], [-0.000013147, 0.000299712]],
                [186.74893118, 89.95593235],
                [-47.113001349, 743.547002813],
            ),
            (
                [23.1172, 31.8943],
                [114.432, 447.829],
                [[0.000684952, 0.000728588], [0.000728588, -0.000684952]],
                [22.90770514, 32.90955642],
                [733.854002357, -375.927999138],
            ),
            (
                [254.6984, -88.7865],
                [102.423, 163.146],
                [[-0.000299933, 0.000006340], [0.000006340, 0.000299933]],
                [246.69846514, -88.81704877],
                [648.080000178, 11.388000358],
            ),
            (
                [53.6539, 35.3351],
                [399.671, 118.523],
                [[-0.000284457, -0.000095311], [-0.000095311, 0.000284457]],
                [53.72704011, 35.51996516],
                [15.719994379, 639.842997580],
            ),
            (
                [182.5445, 1.1365],
                [466.679, 43.827],
                [[0.000086636, -0.000996240], [-0.000996240, -0.000086636]],
                [182.53028558, 0.90266472],
                [698.405002396, 78.245000284],
            ),
            (
                [342.3683, -17.9023],
                [278.524, 120.828],
                [[0.000092132, 0.000038882], [0.000038882, -0.000092132]],
                [342.41047152, -17.92398933],
                [563.848030489, 476.707004801],
            ),
        ];
        for (reference, reference_px, matrix, sky, expected) in cases {
            let at = |[ra_deg, dec_deg]: [f64; 2]| SkyPosition { ra_deg, dec_deg };
            let wcs = Wcs::new(at(reference), reference_px, matrix).unwrap();
            let [x, y] = wcs.to_pixel(at(sky)).unwrap();
            let error = (x - expected[0]).hypot(y - expected[1]);
            assert!(error < 1e-6, "({x}, {y}) is {error} pixels off {expected:?}");
        }
    }

    #[test]
    fn separations_agree_with_those_by_vectors() {
        for seed in 0..500 {
            let mut random = Random::seeded(seed, 2);
            let mut anywhere = || SkyPosition {
                ra_deg: random.between(0.0, 360.0),
                dec_deg: random.between(-90.0, 90.0),
            };
            let (a, b) = (anywhere(), anywhere());
            let by_vectors = dot(vector(a), vector(b)).acos().to_degrees();
            assert!((a.separation_deg(b) - by_vectors).abs() < 1e-6, "seed {seed}");
        }
    }

    #[test]
    fn a_header_carries_the_map_in_both_forms() {
        for seed in 0..200 {
            let mut random = Random::seeded(seed, 3);
            let wcs = random_wcs(&mut random);
            for form in [MatrixForm::Cd, MatrixForm::PcAndCdelt] {
                let mut header = Header::default();
                wcs.push_cards(&mut header, form);
                let read = Wcs::from_header(&Header::parse(&header.encode(1, 1)).unwrap()).unwrap();
                let pixel = [random.between(-500.0, 500.0), random.between(-500.0, 500.0)];
                let apart = read.to_sky(pixel).separation_deg(wcs.to_sky(pixel));
                assert!(apart < 1e-9, "seed {seed}, {form:?}: off by {apart} degrees");
            }
        }
    }

    #[test]
    fn the_far_side_of_the_sky_has_no_pixel() {
        let at = |ra_deg, dec_deg| SkyPosition { ra_deg, dec_deg };
        let wcs = Wcs::turned(at(10.0, 20.0), [50.0, 50.0], 1e-4, 0.0).unwrap();
        assert_eq!(wcs.to_pixel(at(190.0, -20.0)), None);
        assert_eq!(wcs.to_pixel(at(10.0, 20.0)), Some([50.0, 50.0]));
    }

    #[test]
    fn a_window_keeps_the_sky_where_it_is() {
        let reference = SkyPosition { ra_deg: 359.99, dec_deg: -5.0 };
        let wcs = Wcs::turned(reference, [50.0, 60.0], 1e-4, 12.0).unwrap();
        assert_eq!(wcs.windowed(10, 20).to_sky([3.0, 4.0]), wcs.to_sky([13.0, 24.0]));
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        let at = |ra_deg, dec_deg| SkyPosition { ra_deg, dec_deg };
        let new = |dec, matrix| Wcs::new(at(0.0, dec), [1.0, 1.0], matrix).unwrap_err();
        assert_eq!(new(0.0, [[1.0, 2.0], [2.0, 4.0]]), WcsError::Singular);
        assert_eq!(new(0.0, [[0.0; 2]; 2]), WcsError::Singular);
        assert_eq!(new(91.0, [[1.0, 0.0], [0.0, 1.0]]), WcsError::Declination(91.0));
        let wcs = Wcs::turned(at(1.0, 2.0), [1.0, 1.0], 1e-4, 0.0).unwrap();
        let mut header = Header::default();
        assert!(matches!(Wcs::from_header(&header), Err(WcsError::Header(_))));
        header.push_text("CTYPE1", "GLON-CAR", "");
        wcs.push_cards(&mut header, MatrixForm::Cd);
        assert!(matches!(Wcs::from_header(&header), Err(WcsError::Projection { .. })));
        let mut header = Header::default();
        header.push_real("LONPOLE", 90.0, "");
        wcs.push_cards(&mut header, MatrixForm::Cd);
        assert_eq!(Wcs::from_header(&header), Err(WcsError::NativePole(90.0)));
    }
}
