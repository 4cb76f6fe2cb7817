//! The payload: pseudo-random words, each a function of the key and of its own position alone.
//!
//! The algorithm is part of format 1 and is specified in `FORMAT.md`: two 64-bit seeds are digested
//! from the key, and word `i` is the folded 128-bit product of two counters that start from them.

use crate::key::{RecordKey, SECTOR_BYTES};
use crate::label::{FORMAT_VERSION, LABEL_BYTES};

pub(crate) type Sector = [u8; SECTOR_BYTES];

const WORD_BYTES: usize = 8;
const WORDS: usize = SECTOR_BYTES / WORD_BYTES;
/// Words are made and compared in groups as large as a label, so that header, payload and stamp are
/// whole groups.
const GROUP_BYTES: usize = LABEL_BYTES;
const GROUP_WORDS: usize = GROUP_BYTES / WORD_BYTES;
/// The group that is the stamp.
const PAYLOAD_END: usize = SECTOR_BYTES / GROUP_BYTES - 1;

const STEP: u64 = 0xa076_1d64_78bd_642f;
const START: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xe703_7ed1_a0b4_28db;

/// The generator of one record's payload.
#[derive(Clone, Copy)]
pub(crate) struct Payload {
    first: u64,
    second: u64,
}

impl Payload {
    pub(crate) fn new(key: &RecordKey) -> Self {
        let [low, high] = key.run.0.as_chunks::<8>().0 else {
            unreachable!("sixteen bytes are two words")
        };
        let fields = [
            u64::from_le_bytes(*low),
            u64::from_le_bytes(*high),
            key.sequence,
            key.address,
            u64::from(key.stream) << 32 | u64::from(key.version),
            u64::from(key.length) << 32 | u64::from(FORMAT_VERSION),
        ];
        let first = fields.iter().fold(START, |digest, field| {
            finalise(digest ^ field).wrapping_add(START)
        });
        Self {
            first,
            second: finalise(first ^ SECOND),
        }
    }

    /// Writes the payload words of one sector and leaves the place of header and stamp as it is.
    #[inline]
    pub(crate) fn fill(&self, sector: u32, out: &mut Sector) {
        for (group, values) in groups_mut(sector, out).iter_mut().zip(self.groups(sector)) {
            for (word, value) in group.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(values) {
                *word = value.to_le_bytes();
            }
        }
    }

    /// Whether every payload word of the sector is this record's.
    #[inline]
    pub(crate) fn matches(&self, sector: u32, bytes: &Sector) -> bool {
        groups(sector, bytes)
            .iter()
            .zip(self.groups(sector))
            .all(|(group, values)| {
                let words = group.as_chunks::<WORD_BYTES>().0.iter().zip(values);
                words.fold(0, |seen, (word, value)| {
                    seen | (u64::from_le_bytes(*word) ^ value)
                }) == 0
            })
    }

    /// Which payload words of the sector are this record's, in order.
    pub(crate) fn matching_words(&self, sector: u32, bytes: &Sector) -> impl Iterator<Item = bool> {
        let words = groups(sector, bytes)
            .as_flattened()
            .as_chunks::<WORD_BYTES>()
            .0;
        let values = self.groups(sector).flatten();
        words
            .iter()
            .zip(values)
            .map(|(word, value)| u64::from_le_bytes(*word) == value)
    }

    /// The payload words of one sector in groups of eight, without end: the caller takes as many as
    /// it has room for.
    #[inline]
    fn groups(&self, sector: u32) -> impl Iterator<Item = [u64; GROUP_WORDS]> + use<> {
        let at = u64::from(sector) * WORDS as u64 + (first_group(sector) * GROUP_WORDS) as u64;
        let mut counter = self.first.wrapping_add(at.wrapping_mul(STEP));
        let second = self.second;
        std::iter::repeat_with(move || {
            let start = counter;
            counter = counter.wrapping_add(STEP.wrapping_mul(GROUP_WORDS as u64));
            std::array::from_fn(|index| {
                let counter = start.wrapping_add(STEP.wrapping_mul(index as u64));
                let product = u128::from(counter) * u128::from(counter ^ second);
                product as u64 ^ (product >> 64) as u64
            })
        })
    }
}

/// The payload of a sector, in groups.
#[inline]
fn groups(sector: u32, bytes: &Sector) -> &[[u8; GROUP_BYTES]] {
    &bytes.as_chunks().0[first_group(sector)..PAYLOAD_END]
}

#[inline]
fn groups_mut(sector: u32, bytes: &mut Sector) -> &mut [[u8; GROUP_BYTES]] {
    &mut bytes.as_chunks_mut().0[first_group(sector)..PAYLOAD_END]
}

/// Sector 0 begins with the header.
#[inline]
fn first_group(sector: u32) -> usize {
    usize::from(sector == 0)
}

/// The finaliser of splitmix64.
fn finalise(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunId;
    use std::collections::HashSet;

    const KEY: RecordKey = RecordKey {
        run: RunId(*b"0123456789abcdef"),
        stream: 1,
        sequence: 2,
        version: 3,
        address: 4096,
        length: 8192,
    };

    fn sector(key: &RecordKey, sector: u32) -> Sector {
        let mut out = [0; SECTOR_BYTES];
        Payload::new(key).fill(sector, &mut out);
        out
    }

    #[test]
    fn every_field_of_the_key_changes_every_word() {
        let neighbours = [
            RecordKey {
                run: RunId(*b"0123456789abcdeg"),
                ..KEY
            },
            RecordKey {
                run: RunId(*b"1123456789abcdef"),
                ..KEY
            },
            RecordKey { stream: 2, ..KEY },
            RecordKey { sequence: 3, ..KEY },
            RecordKey { version: 4, ..KEY },
            RecordKey {
                address: 4608,
                ..KEY
            },
            RecordKey {
                length: 8704,
                ..KEY
            },
        ];
        for other in neighbours {
            let same = Payload::new(&other)
                .matching_words(1, &sector(&KEY, 1))
                .any(|same| same);
            assert!(!same, "{other}");
        }
    }

    #[test]
    fn no_word_appears_twice_in_a_record_or_in_its_neighbours() {
        let mut seen = HashSet::new();
        for version in 1..=32 {
            let key = RecordKey { version, ..KEY };
            for index in 1..16 {
                for word in &sector(&key, index).as_chunks::<8>().0[..56] {
                    assert!(seen.insert(*word));
                }
            }
        }
    }

    #[test]
    fn half_of_all_payload_bits_are_set() {
        let ones: u32 = (1..2000)
            .flat_map(|index| sector(&KEY, index))
            .map(u8::count_ones)
            .sum();
        let bits = 1999.0 * 448.0 * 8.0;
        let share = f64::from(ones) / bits;
        assert!((0.499..0.501).contains(&share), "{share}");
    }

    #[test]
    fn a_sector_matches_only_at_its_own_index() {
        let bytes = sector(&KEY, 3);
        assert!(Payload::new(&KEY).matches(3, &bytes));
        assert!(!Payload::new(&KEY).matches(4, &bytes));
    }

    #[test]
    fn header_and_stamp_are_left_alone() {
        let mut out = [0x55; SECTOR_BYTES];
        Payload::new(&KEY).fill(0, &mut out);
        assert_eq!(out[..64], [0x55; 64]);
        assert_eq!(out[448..], [0x55; 64]);
        assert_ne!(out[64..72], [0x55; 8]);
        Payload::new(&KEY).fill(1, &mut out);
        assert_ne!(out[..8], [0x55; 8]);
        assert_eq!(out[448..], [0x55; 64]);
    }
}
