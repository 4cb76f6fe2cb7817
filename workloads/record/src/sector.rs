//! One sector, judged alone against the record that should be there.

use std::fmt;

use crate::codec::Regenerator;
use crate::payload::Sector;
use crate::stamp::stamp_of;
use crate::{RecordKey, SECTOR_BYTES, SectorStamp};

/// What one sector holds, at the place of a sector of the expected record. Exactly one applies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SectorState {
    /// Byte for byte the expected record's sector.
    Own,
    /// Byte for byte this sector of an older version: same run, stream and address.
    OwnOlder {
        /// The older version.
        version: u32,
    },
    /// Byte for byte this sector of a newer version: same run, stream and address.
    OwnNewer {
        /// The newer version.
        version: u32,
    },
    /// Byte for byte a sector of this run that belongs elsewhere: to another record, or to another
    /// place in a version of this one.
    OtherRecord(SectorStamp),
    /// Nothing of this run: another run's sector, or bytes without a stamp.
    ForeignRun,
    /// 512 zero bytes.
    Zero,
    /// A sector of this run with wrong bytes: its stamp names this run and the rest is not what the
    /// stamp promises, or it has no such stamp and yet holds a payload word of the expected sector.
    Damaged,
}

impl fmt::Display for SectorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::OwnOlder { version } => write!(f, "older version {version}"),
            Self::OwnNewer { version } => write!(f, "newer version {version}"),
            Self::OtherRecord(stamp) => write!(f, "{stamp}"),
            Self::ForeignRun => f.write_str("foreign"),
            Self::Zero => f.write_str("zero"),
            Self::Damaged => f.write_str("damaged"),
        }
    }
}

/// How many sectors of a record are in which [`SectorState`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SectorMix {
    /// [`SectorState::Own`].
    pub own: u32,
    /// [`SectorState::OwnOlder`], of any version.
    pub older: u32,
    /// [`SectorState::OwnNewer`], of any version.
    pub newer: u32,
    /// [`SectorState::OtherRecord`].
    pub other_record: u32,
    /// [`SectorState::ForeignRun`].
    pub foreign: u32,
    /// [`SectorState::Zero`].
    pub zero: u32,
    /// [`SectorState::Damaged`].
    pub damaged: u32,
}

impl SectorMix {
    /// Counts one sector.
    pub fn add(&mut self, state: &SectorState) {
        let count = match state {
            SectorState::Own => &mut self.own,
            SectorState::OwnOlder { .. } => &mut self.older,
            SectorState::OwnNewer { .. } => &mut self.newer,
            SectorState::OtherRecord(_) => &mut self.other_record,
            SectorState::ForeignRun => &mut self.foreign,
            SectorState::Zero => &mut self.zero,
            SectorState::Damaged => &mut self.damaged,
        };
        *count = count.saturating_add(1);
    }
}

impl<'a> FromIterator<&'a SectorState> for SectorMix {
    fn from_iter<I: IntoIterator<Item = &'a SectorState>>(states: I) -> Self {
        let mut mix = Self::default();
        states.into_iter().for_each(|state| mix.add(state));
        mix
    }
}

impl fmt::Display for SectorMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.own, "own"),
            (self.older, "older"),
            (self.newer, "newer"),
            (self.other_record, "of another record"),
            (self.foreign, "foreign"),
            (self.zero, "zero"),
            (self.damaged, "damaged"),
        ];
        let mut separator = "";
        for (count, name) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {name}")?;
            separator = ", ";
        }
        if separator.is_empty() {
            f.write_str("no sectors")
        } else {
            Ok(())
        }
    }
}

/// A sector, and whether it is two sectors spliced together.
pub(crate) struct Judged {
    pub(crate) state: SectorState,
    /// One end of the sector is the expected record's and the other end is not at all. Only a
    /// [`SectorState::Damaged`] sector can be spliced.
    pub(crate) spliced: bool,
}

/// Judges the sectors of one place.
pub(crate) struct Judge {
    own: Regenerator,
    /// A key that no record can have owns nothing.
    own_exists: bool,
    /// The last other record met; its neighbours are likely of the same one.
    other: Option<Regenerator>,
}

impl Judge {
    pub(crate) fn new(key: &RecordKey) -> Self {
        Self {
            own: Regenerator::new(key),
            own_exists: key.check().is_ok(),
            other: None,
        }
    }

    pub(crate) fn own(&mut self) -> Option<&mut Regenerator> {
        self.own_exists.then_some(&mut self.own)
    }

    pub(crate) fn judge(&mut self, index: u32, bytes: &Sector) -> Judged {
        if self.own_exists && self.own.is_exact(index, bytes) {
            return Judged {
                state: SectorState::Own,
                spliced: false,
            };
        }
        if *bytes == [0; SECTOR_BYTES] {
            return Judged {
                state: SectorState::Zero,
                spliced: false,
            };
        }
        let expected = *self.own.key();
        let stamp = stamp_of(bytes).filter(|stamp| stamp.run == expected.run);
        if let Some(stamp) = stamp
            && self.bears_out(&stamp, bytes)
        {
            return Judged {
                state: Self::place(&expected, index, stamp),
                spliced: false,
            };
        }
        let (resembles, spliced) = if self.own_exists {
            self.resembles(index, bytes)
        } else {
            (false, false)
        };
        let state = if stamp.is_some() || resembles {
            SectorState::Damaged
        } else {
            SectorState::ForeignRun
        };
        Judged { state, spliced }
    }

    /// Whether the whole sector is what its stamp says.
    fn bears_out(&mut self, stamp: &SectorStamp, bytes: &Sector) -> bool {
        let key = stamp.key();
        if *self.own.key() == key {
            return self.own.is_exact(stamp.sector, bytes);
        }
        let known = self.other.take().filter(|known| *known.key() == key);
        self.other
            .insert(known.unwrap_or_else(|| Regenerator::new(&key)))
            .is_exact(stamp.sector, bytes)
    }

    /// Where a sound sector of this run, which is not the expected one, belongs.
    fn place(expected: &RecordKey, index: u32, stamp: SectorStamp) -> SectorState {
        let version = stamp.version;
        if !stamp.key().same_place(expected) || stamp.sector != index || version == expected.version
        {
            SectorState::OtherRecord(stamp)
        } else if version < expected.version {
            SectorState::OwnOlder { version }
        } else {
            SectorState::OwnNewer { version }
        }
    }

    /// Whether the sector holds any payload word of the expected one, and whether it is spliced.
    ///
    /// Spliced: at least two words and one end of the sector (the stamp, or the header if there is
    /// one) are the expected record's, at least two words and the other end are not, and the two
    /// sides meet once. A burst of errors over one end of a sector looks the same and cannot be
    /// told apart.
    fn resembles(&mut self, index: u32, bytes: &Sector) -> (bool, bool) {
        let mut own_words = 0_usize;
        let mut words = 0_usize;
        let mut seams = 0_usize;
        let mut starts_own = false;
        let mut last = false;
        for same in self.own.payload().matching_words(index, bytes) {
            if words == 0 {
                starts_own = same;
            } else if same != last {
                seams += 1;
            }
            last = same;
            words += 1;
            own_words += usize::from(same);
        }
        let stamped = self.own.has_stamp(index, bytes);
        let headed = index == 0 && self.own.has_header(bytes);
        let ends_agree = stamped != starts_own && (index != 0 || headed == starts_own);
        let spliced = seams == 1 && own_words >= 2 && words - own_words >= 2 && ends_agree;
        (own_words > 0, spliced)
    }
}
