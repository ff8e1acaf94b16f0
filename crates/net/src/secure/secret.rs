//! Secrets, and the identifiers that stand beside them in an access file.

use std::{fmt, io};

use zeroize::{Zeroize, Zeroizing};

/// 32 secret bytes. They are wiped when the value is dropped, compared in
/// constant time, and never printed.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A secret from elsewhere.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// The bytes of the secret, for its intended receiver.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A fresh secret from the system's random source.
    pub(super) fn random() -> io::Result<Secret> {
        let mut secret = Secret([0; 32]);
        fill_randomly(&mut secret.0)?;
        Ok(secret)
    }

    /// A secret that follows from this one and `material`, for one purpose:
    /// `context` names it, and differs from every other context.
    pub(super) fn derive(&self, context: &str, material: &[u8]) -> Secret {
        let mut all = Zeroizing::new(Vec::with_capacity(32 + material.len()));
        all.extend_from_slice(&self.0);
        all.extend_from_slice(material);
        Secret(blake3::derive_key(context, &all))
    }

    /// Shows knowledge of this secret for `label` and `transcript`. The result
    /// compares in constant time.
    pub(super) fn proof(&self, label: &[u8; 16], transcript: &[u8; 32]) -> blake3::Hash {
        let mut input = [0; 48];
        input[..16].copy_from_slice(label);
        input[16..].copy_from_slice(transcript);
        blake3::keyed_hash(&self.0, &input)
    }

    pub(super) fn from_hex(text: &str) -> Result<Secret, NotHex> {
        let mut secret = Secret([0; 32]);
        decode_hex(text, &mut secret.0)?;
        Ok(secret)
    }

    /// The secret as 64 digits, in a buffer that wipes itself.
    pub(super) fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(encode_hex(&self.0))
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        constant_time_eq::constant_time_eq_32(&self.0, &other.0)
    }
}

impl Eq for Secret {}

/// The random number that tells one dispatcher from another. Stays the same
/// over restarts with the same directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DispatcherId(pub [u8; 16]);

/// The BLAKE3 hash of a certificate's DER encoding, by which a client knows the
/// certificate that it is to accept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate, given as DER.
    #[must_use]
    pub fn of(certificate_der: &[u8]) -> Fingerprint {
        Fingerprint(blake3::hash(certificate_der).into())
    }
}

/// Both identifiers are written as hexadecimal digits, in text and in files.
macro_rules! written_in_hex {
    ($name:ident, $bytes:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&encode_hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let mut bytes = [0; $bytes];
                decode_hex(&text, &mut bytes).map_err(serde::de::Error::custom)?;
                Ok($name(bytes))
            }
        }
    };
}

written_in_hex!(DispatcherId, 16);
written_in_hex!(Fingerprint, 32);

/// A text that is not the expected number of hexadecimal digits. Does not
/// repeat the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {digits} hexadecimal digits")]
pub struct NotHex {
    /// How many digits were expected.
    pub digits: usize,
}

/// Fills `bytes` from the system's random source.
pub(crate) fn fill_randomly(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error.to_string()),
    })
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(super) fn encode_hex(bytes: &[u8]) -> String {
    // Reserved in full, so that no half-written copy is left behind unwiped.
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

pub(super) fn decode_hex(text: &str, bytes: &mut [u8]) -> Result<(), NotHex> {
    let wrong = NotHex { digits: bytes.len() * 2 };
    if text.len() != wrong.digits {
        return Err(wrong);
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).map(|d| d as u8).ok_or(wrong);
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hex_reads_back(bytes: [u8; 32]) {
            let secret = Secret::from_bytes(bytes);
            prop_assert_eq!(Secret::from_hex(&secret.to_hex()).unwrap(), secret);
        }

        #[test]
        fn any_text_is_hex_or_an_error(text in "\\PC*|[0-9a-fg]{62,66}") {
            let good = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
            prop_assert_eq!(Secret::from_hex(&text).is_ok(), good);
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::from_bytes([0xab; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn derived_secrets_differ_by_context_and_material() {
        let secret = Secret::from_bytes([7; 32]);
        assert_ne!(secret.derive("one", b"x"), secret.derive("two", b"x"));
        assert_ne!(secret.derive("one", b"x"), secret.derive("one", b"y"));
        assert_eq!(secret.derive("one", b"x"), secret.derive("one", b"x"));
    }
}
