//! Newtypes for every quantity that could be mistaken for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// Bytes in one sector, the unit of device addresses: 512, whatever the
/// logical block size of the device is.
pub const SECTOR_BYTES: u64 = 512;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

newtype!(
    /// A byte offset within one object (a device, or a file).
    ByteOffset,
    u64
);
newtype!(
    /// A device address in units of [`SECTOR_BYTES`].
    Sector,
    u64
);
newtype!(
    /// The place of a record in its stream, counted from 0.
    Sequence,
    u64
);
newtype!(
    /// One writer's stream of records.
    StreamId,
    u32
);
newtype!(
    /// A position in a recording: the number of events (submissions and
    /// completions) that the drive had counted. A cut *at* position `p` sees
    /// exactly the events numbered `0..p`.
    Position,
    u64
);
newtype!(
    /// The number of a trial within its cell, counted from 1.
    Trial,
    u32
);

impl ByteOffset {
    /// The sector that holds this byte.
    #[must_use]
    pub fn sector(self) -> Sector {
        Sector(self.0 / SECTOR_BYTES)
    }
}

/// A size as a person writes it: an integer of bytes, or a string with a
/// binary unit (`"64 MiB"`). Decimal units are refused, since a device of
/// "64 MB" is a question and not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Size(pub u64);

/// Why a text is not a [`Size`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a size; write bytes as an integer, or a number with B, KiB, MiB or GiB, for example \"64 MiB\""
)]
pub struct SizeError(pub String);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let error = || SizeError(text.to_owned());
        let text_trimmed = text.trim();
        let split = text_trimmed
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text_trimmed.len());
        let (digits, unit) = text_trimmed.split_at(split);
        let number: u64 = digits.parse().map_err(|_| error())?;
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(error()),
        };
        number.checked_mul(factor).map(Size).ok_or_else(error)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            v if v != 0 && v.is_multiple_of(1 << 30) => (v >> 30, "GiB"),
            v if v != 0 && v.is_multiple_of(1 << 20) => (v >> 20, "MiB"),
            v if v != 0 && v.is_multiple_of(1 << 10) => (v >> 10, "KiB"),
            v => (v, "B"),
        };
        write!(f, "{value} {unit}")
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size: bytes as an integer, or a string such as \"64 MiB\"")
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Size, E> {
                Ok(Size(value))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Size, E> {
                u64::try_from(value)
                    .map(Size)
                    .map_err(|_| E::custom(format!("a size cannot be negative ({value})")))
            }
            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Size, E> {
                value.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_with_a_binary_unit_is_read() {
        assert_eq!("64 MiB".parse(), Ok(Size(64 << 20)));
        assert_eq!("4096".parse(), Ok(Size(4096)));
        assert_eq!(Size(64 << 20).to_string(), "64 MiB");
    }

    #[test]
    fn a_wrong_unit_a_sign_and_an_overflow_are_refused() {
        for text in ["64 MB", "-1", "1.5 GiB", "", "99999999999999 GiB", "GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text} was taken");
        }
    }
}
