//! The ten classes.

use std::fmt;

use crate::{RecordKey, RunId, SectorMix};

/// What lies where a record should be. Exactly one applies to any bytes.
///
/// The rows are tried in this order and the first that fits is the answer. A *version* of the
/// record shares its run, stream and address; a *logical block is mixed* when it holds a sector of
/// a version and also a sound sector that is not of that same version.
///
/// | class | when |
/// |---|---|
/// | `Absent` | no bytes, or all of them zero |
/// | `Short` | fewer bytes than the record |
/// | `Intact` | every sector is the expected record's |
/// | `Shorn` | a logical block is mixed, or a sector is spliced from two writes |
/// | `Corrupt` | a sector is damaged |
/// | `Stale` | every sector is of one older version |
/// | `Newer` | every sector is of one newer version |
/// | `Torn` | some sector is of some version |
/// | `Misdirected` | some sector is of another record of this run, or of another place in this |
/// | `Foreign` | anything else: no byte of this run |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Byte for byte the expected record.
    Intact,
    /// All zero, or no bytes at all.
    Absent,
    /// The bytes end before the record does.
    Short {
        /// How many bytes there are.
        have_bytes: u32,
        /// How many of them, from the first on, are the expected record's.
        own_bytes: u32,
        /// The whole sectors among them.
        mix: SectorMix,
    },
    /// A whole older version.
    Stale {
        /// Which.
        version: u32,
    },
    /// A whole newer version.
    Newer {
        /// Which.
        version: u32,
    },
    /// No sector is of any version of the expected record and at least one, sound, is of another
    /// record of this run. Zero and foreign sectors may lie beside it.
    Misdirected {
        /// The first such record.
        found: RecordKey,
    },
    /// Every logical block is from one source, and not all from the same: some are of the expected
    /// record or another version of it, and others of something else. `own_sectors` may be 0, as
    /// when two older versions are mixed.
    Torn {
        /// How many sectors are the expected record's.
        own_sectors: u32,
        /// The first that is not.
        first_bad_sector: u32,
        /// All of them.
        mix: SectorMix,
    },
    /// A version of the record and something else inside one logical block, which no drive may do.
    Shorn {
        /// How many sectors are the expected record's.
        own_sectors: u32,
        /// The first sector that is not, in the first logical block that is mixed or spliced.
        first_bad_sector: u32,
        /// All of them.
        mix: SectorMix,
    },
    /// A sector of this run with wrong bytes. The others may be anything that is not shorn.
    Corrupt {
        /// How many sectors are the expected record's.
        own_sectors: u32,
        /// The first damaged sector.
        first_bad_sector: u32,
        /// All of them.
        mix: SectorMix,
    },
    /// Nothing of this run, and not all zero.
    Foreign {
        /// The first other run whose stamp was found; `None` for raw data.
        run: Option<RunId>,
        /// How the sectors divide into foreign and zero.
        mix: SectorMix,
    },
}

impl Class {
    /// The name of the class in reports: lower case, one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Intact => "intact",
            Self::Absent => "absent",
            Self::Short { .. } => "short",
            Self::Stale { .. } => "stale",
            Self::Newer { .. } => "newer",
            Self::Misdirected { .. } => "misdirected",
            Self::Torn { .. } => "torn",
            Self::Shorn { .. } => "shorn",
            Self::Corrupt { .. } => "corrupt",
            Self::Foreign { .. } => "foreign",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Intact | Self::Absent => Ok(()),
            Self::Short {
                have_bytes,
                own_bytes,
                mix,
            } => {
                write!(
                    f,
                    " at {have_bytes} bytes, the first {own_bytes} its own ({mix})"
                )
            }
            Self::Stale { version } | Self::Newer { version } => write!(f, ": version {version}"),
            Self::Misdirected { found } => write!(f, ": {found}"),
            Self::Torn {
                first_bad_sector,
                mix,
                ..
            }
            | Self::Shorn {
                first_bad_sector,
                mix,
                ..
            }
            | Self::Corrupt {
                first_bad_sector,
                mix,
                ..
            } => {
                write!(f, " from sector {first_bad_sector} ({mix})")
            }
            Self::Foreign {
                run: Some(run),
                mix,
            } => write!(f, ": run {run} ({mix})"),
            Self::Foreign { run: None, mix } => write!(f, ": raw data ({mix})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_prints_its_name_and_its_evidence() {
        let mix = SectorMix {
            own: 2,
            zero: 6,
            ..SectorMix::default()
        };
        let torn = Class::Torn {
            own_sectors: 2,
            first_bad_sector: 2,
            mix,
        };
        assert_eq!(torn.to_string(), "torn from sector 2 (2 own, 6 zero)");
        assert_eq!(Class::Stale { version: 3 }.to_string(), "stale: version 3");
        assert_eq!(Class::Intact.to_string(), "intact");
    }
}
