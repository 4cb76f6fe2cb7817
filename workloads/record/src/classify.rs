//! Which one of ten things lies where a record should be.

use crate::codec::Regenerator;
use crate::key::SECTOR_LEN;
use crate::sector::{Judge, Judged};
use crate::{Class, Expected, RecordKey, RunId, SECTOR_BYTES, SectorMix, SectorState, find_stamp};

/// Names what was read from the place of a record. Total: it takes any bytes and never panics.
/// Bytes beyond the record's length are not looked at.
///
/// No checksum is trusted: every byte is compared with the one the key generates. That is also the
/// fast path for an intact record.
pub fn classify(bytes: &[u8], expected: &Expected) -> Class {
    let bytes = expected.part_of(bytes);
    let (sectors, rest) = bytes.as_chunks::<SECTOR_BYTES>();
    if sectors.iter().all(|sector| *sector == [0; SECTOR_BYTES]) && rest.iter().all(|&b| b == 0) {
        return Class::Absent;
    }
    let mut judge = Judge::new(&expected.key);
    let have_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if have_bytes < expected.length() {
        let own_bytes = judge.own().map_or(0, |own| leading_own_bytes(own, bytes));
        let mix = Tally::take(bytes, expected, &mut judge).mix;
        return Class::Short {
            have_bytes,
            own_bytes,
            mix,
        };
    }
    if judge.own().is_some_and(|own| own.is_whole(bytes)) {
        return Class::Intact;
    }
    Tally::take(bytes, expected, &mut judge).class(expected)
}

/// The evidence behind [`classify`]: the state of every whole sector, of at most the record's
/// length. A part of a sector at the end has no state.
pub fn sector_states(bytes: &[u8], expected: &Expected) -> Vec<SectorState> {
    let mut judge = Judge::new(&expected.key);
    let sectors = expected.part_of(bytes).as_chunks::<SECTOR_BYTES>().0;
    (0..)
        .zip(sectors)
        .map(|(index, sector)| judge.judge(index, sector).state)
        .collect()
}

fn leading_own_bytes(own: &mut Regenerator, bytes: &[u8]) -> u32 {
    let mut same = 0;
    let mut regenerated = [0; SECTOR_BYTES];
    for (index, sector) in (0..).zip(bytes.chunks(SECTOR_BYTES)) {
        own.fill(index, &mut regenerated);
        let agreeing = sector
            .iter()
            .zip(&regenerated)
            .take_while(|(have, want)| have == want);
        let agreeing = u32::try_from(agreeing.count()).unwrap_or(SECTOR_LEN);
        same += agreeing;
        if agreeing < SECTOR_LEN {
            break;
        }
    }
    same
}

/// Where a sound sector comes from, as far as a tear is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Version(u32),
    Elsewhere,
}

/// The logical block being read.
#[derive(Clone, Copy, Default)]
struct Block {
    number: u64,
    source: Option<Source>,
    first_not_own: Option<u32>,
}

/// What the sectors of one place add up to.
#[derive(Default)]
struct Tally {
    mix: SectorMix,
    first_not_own: Option<u32>,
    first_damaged: Option<u32>,
    first_shorn: Option<u32>,
    first_other: Option<RecordKey>,
    first_foreign_run: Option<RunId>,
    /// The version of the first sector that is of any.
    version: Option<u32>,
    /// Whether a sector is of anything but that version.
    divided: bool,
    block: Block,
}

impl Tally {
    fn take(bytes: &[u8], expected: &Expected, judge: &mut Judge) -> Self {
        let mut tally = Self::default();
        for (index, sector) in (0..).zip(bytes.as_chunks::<SECTOR_BYTES>().0) {
            let judged = judge.judge(index, sector);
            if judged.state == SectorState::ForeignRun && tally.first_foreign_run.is_none() {
                tally.first_foreign_run = find_stamp(sector).map(|stamp| stamp.run);
            }
            tally.add(index, &judged, expected);
        }
        tally.divided |= tally.mix.other_record + tally.mix.foreign + tally.mix.zero > 0;
        tally
    }

    fn add(&mut self, index: u32, judged: &Judged, expected: &Expected) {
        self.mix.add(&judged.state);
        let number = expected.block_of(index);
        if number != self.block.number {
            self.block = Block {
                number,
                ..Block::default()
            };
        }
        if judged.state != SectorState::Own {
            self.first_not_own.get_or_insert(index);
            self.block.first_not_own.get_or_insert(index);
        }
        if judged.spliced {
            self.shorn(index);
        }
        let source = match judged.state {
            SectorState::Own => Source::Version(expected.key.version),
            SectorState::OwnOlder { version } | SectorState::OwnNewer { version } => {
                Source::Version(version)
            }
            SectorState::OtherRecord(stamp) => {
                self.first_other.get_or_insert(stamp.key());
                Source::Elsewhere
            }
            SectorState::ForeignRun | SectorState::Zero => Source::Elsewhere,
            SectorState::Damaged => {
                self.first_damaged.get_or_insert(index);
                return;
            }
        };
        if let Source::Version(version) = source {
            self.divided |= *self.version.get_or_insert(version) != version;
        }
        if *self.block.source.get_or_insert(source) != source {
            self.shorn(index);
        }
    }

    fn shorn(&mut self, index: u32) {
        let first_bad = self.block.first_not_own.unwrap_or(index);
        self.first_shorn.get_or_insert(first_bad);
    }

    fn class(self, expected: &Expected) -> Class {
        let mix = self.mix;
        let own_sectors = mix.own;
        if let Some(first_bad_sector) = self.first_shorn {
            return Class::Shorn {
                own_sectors,
                first_bad_sector,
                mix,
            };
        }
        if let Some(first_bad_sector) = self.first_damaged {
            return Class::Corrupt {
                own_sectors,
                first_bad_sector,
                mix,
            };
        }
        match (self.version, self.first_other) {
            (Some(_), _) if self.divided => Class::Torn {
                own_sectors,
                first_bad_sector: self.first_not_own.unwrap_or(0),
                mix,
            },
            (Some(version), _) if version < expected.key.version => Class::Stale { version },
            (Some(version), _) if version > expected.key.version => Class::Newer { version },
            (Some(_), _) => Class::Intact,
            (None, Some(found)) => Class::Misdirected { found },
            (None, None) => Class::Foreign {
                run: self.first_foreign_run,
                mix,
            },
        }
    }
}

#[cfg(test)]
mod tests;
