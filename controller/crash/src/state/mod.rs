//! Crash states: which images a cut can leave, by the rules of `FAULTS.md`.
//!
//! [`explorer::Explorer`] walks a recording event by event and keeps what is
//! durable and what is a candidate; [`enumerate`] turns the candidates of one
//! cut into crash states, exhaustively where the budget allows.

mod components;
pub mod content;
pub mod enumerate;
pub mod explorer;
pub mod image;
pub mod minimise;

pub mod planted;

use std::fmt;
use std::str::FromStr;

/// A unit of tearing, counted from the start of the device: one logical block,
/// or one 512-byte sector under the planted fault `shorn`.
pub type Unit = u64;

/// Where the content of one unit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The image at `base`.
    Base,
    /// The log, at this byte.
    Log(u64),
    /// One byte throughout.
    Fill(u8),
}

/// A crash image by content: equal ids mean equal bytes.
///
/// The sum over all units, modulo 2^128, of a 128-bit BLAKE3 digest of (unit,
/// content) less that of what the unit holds in the image at `base`. So the id
/// of an image relative to one base, plus that base's id relative to another,
/// is its id relative to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId(pub u128);

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A text that is no [`ImageId`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an image id: give its 32 hex digits")]
pub struct ImageIdError(String);

impl FromStr for ImageId {
    type Err = ImageIdError;
    fn from_str(text: &str) -> Result<Self, ImageIdError> {
        if text.len() != 32 {
            return Err(ImageIdError(text.to_owned()));
        }
        u128::from_str_radix(text, 16)
            .map(ImageId)
            .map_err(|_| ImageIdError(text.to_owned()))
    }
}

/// One crash state: the image it gives, and how to build it from the durable
/// image of its cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashState {
    /// The image.
    pub image: ImageId,
    /// Units that differ from the durable image of the cut, ascending.
    pub overrides: Vec<(Unit, Source)>,
    /// What a planted fault of the drive does to this image on top.
    pub planted: Option<Planted>,
    /// The log does not say whether this image can occur: see
    /// [`explorer::Covers::InDoubt`]. A breach on it proves nothing.
    pub doubtful: bool,
}

/// Damage that a planted fault does to one crash image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// This bit of this unit is flipped.
    BitFlip {
        /// The unit.
        unit: Unit,
        /// The bit, counted from the unit's first byte, lowest bit first.
        bit: u64,
    },
    /// This unit holds what belongs elsewhere.
    Misplaced {
        /// The unit.
        unit: Unit,
        /// What it holds.
        source: Source,
    },
}
