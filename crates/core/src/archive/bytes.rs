//! Little-endian numbers in slices of unknown length.

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let found = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(found.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(found.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(found.try_into().ok()?))
}

/// The data of the extra field with this id. Extra fields that end early have
/// no further fields.
pub(super) fn extra(mut fields: &[u8], id: u16) -> Option<&[u8]> {
    loop {
        let (this, bytes) = (u16_at(fields, 0)?, usize::from(u16_at(fields, 2)?));
        let data = fields.get(4..4 + bytes)?;
        if this == id {
            return Some(data);
        }
        fields = &fields[4 + bytes..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_the_slice_does() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(u16_at(&bytes, 6), Some(0x0807));
        assert_eq!(u16_at(&bytes, 7), None);
        assert_eq!(u32_at(&bytes, 4), Some(0x0807_0605));
        assert_eq!(u64_at(&bytes, 0), Some(0x0807_0605_0403_0201));
        assert_eq!(u64_at(&bytes, usize::MAX), None);
    }

    #[test]
    fn an_extra_field_is_found_behind_others() {
        let fields = [9, 0, 1, 0, 7, 1, 0, 2, 0, 5, 6, 3, 0, 9, 0, 1];
        assert_eq!(extra(&fields, 1), Some(&[5, 6][..]));
        assert_eq!(extra(&fields, 9), Some(&[7][..]));
        assert_eq!(extra(&fields, 3), None);
        assert_eq!(extra(&[], 3), None);
    }
}
