//! Properties of the record over generated keys, mutations and garbage.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use plugpull_record::{
    Class, Expected, RecordKey, RunId, SectorMix, SectorState, classify, decode, encode,
    encode_sector, find_stamp, sector_states,
};
use proptest::prelude::*;
use proptest::sample::Index;

fn keys(sectors: impl Strategy<Value = u32>) -> impl Strategy<Value = RecordKey> {
    let identity = (
        any::<[u8; 16]>(),
        any::<u32>(),
        any::<u64>(),
        2..=u32::MAX - 1,
    );
    (identity, 0..(1_u64 << 54), sectors).prop_map(
        |((run, stream, sequence, version), place, sectors)| RecordKey {
            run: RunId(run),
            stream,
            sequence,
            version,
            address: place * 512,
            length: sectors * 512,
        },
    )
}

fn block_sizes() -> impl Strategy<Value = u32> {
    (9_u32..=16).prop_map(|shift| 1 << shift)
}

fn encoded(key: &RecordKey) -> Vec<u8> {
    let mut bytes = vec![0; key.length as usize];
    encode(key, &mut bytes).unwrap();
    bytes
}

/// Where a sector of a constructed image is taken from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    Own,
    Older,
    MuchOlder,
    Newer,
    OtherStream,
    OtherRun,
    Zero,
    Raw,
    /// The own sector with one bit flipped.
    Flipped(u16),
}

fn sources() -> impl Strategy<Value = Origin> {
    prop_oneof![
        4 => Just(Origin::Own),
        2 => Just(Origin::Older),
        1 => Just(Origin::MuchOlder),
        1 => Just(Origin::Newer),
        1 => Just(Origin::OtherStream),
        1 => Just(Origin::OtherRun),
        2 => Just(Origin::Zero),
        1 => Just(Origin::Raw),
        1 => (0_u16..4096).prop_map(Origin::Flipped),
    ]
}

fn other_run(key: &RecordKey) -> RunId {
    RunId(key.run.0.map(|byte| !byte))
}

impl Origin {
    fn version(self, key: &RecordKey) -> Option<u32> {
        match self {
            Self::Own => Some(key.version),
            Self::Older => Some(key.version - 1),
            Self::MuchOlder => Some(key.version / 2),
            Self::Newer => Some(key.version + 1),
            _ => None,
        }
    }

    fn sector(self, key: &RecordKey, index: u32) -> [u8; 512] {
        let mut out = [0; 512];
        let source = match self {
            Self::Zero => return out,
            Self::Raw => return [0xd7; 512],
            Self::OtherStream => RecordKey {
                stream: !key.stream,
                ..*key
            },
            Self::OtherRun => RecordKey {
                run: other_run(key),
                ..*key
            },
            Self::Flipped(_) => *key,
            _ => RecordKey {
                version: self.version(key).unwrap(),
                ..*key
            },
        };
        encode_sector(&source, index, &mut out).unwrap();
        if let Self::Flipped(bit) = self {
            out[usize::from(bit / 8)] ^= 1 << (bit % 8);
        }
        out
    }

    fn state(self, key: &RecordKey, bytes: &[u8]) -> SectorState {
        match self {
            Self::Own => SectorState::Own,
            Self::Older | Self::MuchOlder => SectorState::OwnOlder {
                version: self.version(key).unwrap(),
            },
            Self::Newer => SectorState::OwnNewer {
                version: key.version + 1,
            },
            Self::OtherStream => SectorState::OtherRecord(find_stamp(bytes).unwrap()),
            Self::OtherRun | Self::Raw => SectorState::ForeignRun,
            Self::Zero => SectorState::Zero,
            Self::Flipped(_) => SectorState::Damaged,
        }
    }
}

/// The decision table of FORMAT.md once more, over the sources and not over the bytes.
fn name_by_the_table(from: &[Origin], key: &RecordKey, block: u32) -> &'static str {
    let all = |wanted: &dyn Fn(Origin) -> bool| from.iter().all(|source| wanted(*source));
    let any = |wanted: &dyn Fn(Origin) -> bool| from.iter().any(|source| wanted(*source));
    let block_of = |index: usize| (key.address + index as u64 * 512) / u64::from(block);
    let mixed = (0..from.len()).any(|left| {
        (0..from.len()).any(|right| {
            block_of(left) == block_of(right)
                && from[left].version(key).is_some()
                && !matches!(from[right], Origin::Flipped(_))
                && from[left].version(key) != from[right].version(key)
        })
    });
    let first = from[0].version(key);
    if all(&|source| source == Origin::Zero) {
        "absent"
    } else if all(&|source| source == Origin::Own) {
        "intact"
    } else if mixed {
        "shorn"
    } else if any(&|source| matches!(source, Origin::Flipped(_))) {
        "corrupt"
    } else if first.is_some() && all(&|source| source.version(key) == first) {
        if first < Some(key.version) {
            "stale"
        } else {
            "newer"
        }
    } else if any(&|source| source.version(key).is_some()) {
        "torn"
    } else if any(&|source| source == Origin::OtherStream) {
        "misdirected"
    } else {
        "foreign"
    }
}

/// What must hold of any bytes whatever.
fn check_consistent(bytes: &[u8], expected: &Expected) -> Result<(), TestCaseError> {
    let class = classify(bytes, expected);
    let own = encoded(&expected.key);
    let part = &bytes[..bytes.len().min(own.len())];
    prop_assert_eq!(class == Class::Intact, part == own, "{}", class);
    prop_assert_eq!(
        class == Class::Absent,
        part.iter().all(|byte| *byte == 0),
        "{}",
        class
    );
    let states = sector_states(bytes, expected);
    prop_assert_eq!(states.len(), part.len() / 512);
    let expected_mix: SectorMix = states.iter().collect();
    match class {
        Class::Torn {
            own_sectors,
            first_bad_sector,
            mix,
        }
        | Class::Shorn {
            own_sectors,
            first_bad_sector,
            mix,
        }
        | Class::Corrupt {
            own_sectors,
            first_bad_sector,
            mix,
        } => {
            prop_assert_eq!(mix, expected_mix);
            prop_assert_eq!(mix.own, own_sectors);
            prop_assert_ne!(states[first_bad_sector as usize], SectorState::Own);
        }
        Class::Short {
            have_bytes,
            own_bytes,
            mix,
        } => {
            prop_assert_eq!(mix, expected_mix);
            prop_assert_eq!(have_bytes as usize, part.len());
            let same = part
                .iter()
                .zip(&own)
                .take_while(|(have, want)| have == want)
                .count();
            prop_assert_eq!(own_bytes as usize, same);
        }
        Class::Foreign { mix, .. } => prop_assert_eq!(mix, expected_mix),
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decode_returns_what_encode_was_given(key in keys(1_u32..=2048)) {
        prop_assert_eq!(decode(&encoded(&key)), Ok(key));
    }

    #[test]
    fn any_sector_alone_is_the_one_in_the_record(key in keys(1_u32..=64), pick in any::<Index>()) {
        let index = u32::try_from(pick.index(key.sectors() as usize)).unwrap();
        let mut alone = [0; 512];
        encode_sector(&key, index, &mut alone).unwrap();
        let at = index as usize * 512;
        prop_assert_eq!(&encoded(&key)[at..at + 512], &alone);
    }

    #[test]
    fn sectors_of_any_sources_are_classified_as_the_table_says(
        (key, from) in (1_usize..=24).prop_flat_map(|sectors| (
            keys(Just(u32::try_from(sectors).unwrap())),
            prop_oneof![
                proptest::collection::vec(sources(), sectors),
                (sources(), sources(), 0..=sectors).prop_map(move |(head, tail, at)| {
                    [vec![head; at], vec![tail; sectors - at]].concat()
                }),
            ],
        )),
        block in block_sizes(),
    ) {
        // MuchOlder must differ from Older.
        prop_assume!(key.version > 4);
        let bytes: Vec<u8> =
            (0..).zip(&from).flat_map(|(index, source)| source.sector(&key, index)).collect();
        let expected = Expected::new(key, block).unwrap();
        check_consistent(&bytes, &expected)?;
        let states: Vec<SectorState> = from
            .iter()
            .zip(bytes.chunks(512))
            .map(|(source, sector)| source.state(&key, sector))
            .collect();
        prop_assert_eq!(sector_states(&bytes, &expected), states);
        prop_assert_eq!(classify(&bytes, &expected).name(), name_by_the_table(&from, &key, block));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_corrupt_in_that_sector(
        key in keys(1_u32..=32), pick in any::<Index>(), block in block_sizes(),
    ) {
        let mut bytes = encoded(&key);
        let bit = pick.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let sector = u32::try_from(bit / 4096).unwrap();
        let class = classify(&bytes, &Expected::new(key, block).unwrap());
        prop_assert!(
            matches!(class, Class::Corrupt { first_bad_sector, own_sectors, .. }
                if first_bad_sector == sector && own_sectors == key.sectors() - 1),
            "{class}"
        );
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn a_truncated_record_is_short_and_counts_its_own_bytes(
        key in keys(1_u32..=32), pick in any::<Index>(),
    ) {
        let mut bytes = encoded(&key);
        bytes.truncate(pick.index(bytes.len()));
        let expected = Expected::new(key, 4096).unwrap();
        check_consistent(&bytes, &expected)?;
        if !bytes.is_empty() {
            prop_assert_eq!(classify(&bytes, &expected).name(), "short");
        }
    }

    #[test]
    fn two_swapped_sectors_are_never_intact(
        key in keys(2_u32..=32),
        left in any::<Index>(),
        right in any::<Index>(),
        block in block_sizes(),
    ) {
        let sectors = key.sectors() as usize;
        let left = left.index(sectors);
        let right = (left + 1 + right.index(sectors - 1)) % sectors;
        let own = encoded(&key);
        let mut bytes = own.clone();
        bytes[left * 512..][..512].copy_from_slice(&own[right * 512..][..512]);
        bytes[right * 512..][..512].copy_from_slice(&own[left * 512..][..512]);
        let expected = Expected::new(key, block).unwrap();
        check_consistent(&bytes, &expected)?;
        let states = sector_states(&bytes, &expected);
        let SectorState::OtherRecord(stamp) = states[left] else {
            return Err(TestCaseError::fail(states[left].to_string()));
        };
        prop_assert_eq!(stamp.sector as usize, right);
    }

    #[test]
    fn a_splice_of_any_other_record_is_never_intact(
        (key, other) in (1_u32..=16).prop_flat_map(|n| (keys(Just(n)), keys(Just(n)))),
        same_run in any::<bool>(),
        start in any::<Index>(),
        end in any::<Index>(),
        block in block_sizes(),
    ) {
        let other = if same_run { RecordKey { run: key.run, ..other } } else { other };
        let mut bytes = encoded(&key);
        let (start, end) = (start.index(bytes.len() + 1), end.index(bytes.len() + 1));
        let range = start.min(end)..start.max(end);
        bytes[range.clone()].copy_from_slice(&encoded(&other)[range]);
        check_consistent(&bytes, &Expected::new(key, block).unwrap())?;
    }

    #[test]
    fn classify_and_decode_take_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        key in keys(1_u32..=6), block in block_sizes(),
    ) {
        check_consistent(&bytes, &Expected::new(key, block).unwrap())?;
        prop_assert!(decode(&bytes).is_err());
        prop_assert_eq!(find_stamp(&bytes), None);
    }

    #[test]
    fn classify_takes_any_expectation(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        whole in keys(1_u32..=6),
        run in any::<[u8; 16]>(),
        (stream, sequence, version, address, length) in any::<(u32, u64, u32, u64, u32)>(),
        logical_block_bytes in any::<u32>(),
    ) {
        let key = RecordKey { run: RunId(run), stream, sequence, version, address, length };
        let expected = Expected { key, logical_block_bytes };
        for bytes in [bytes, encoded(&whole)] {
            let class = classify(&bytes, &expected);
            prop_assert!(class != Class::Intact);
            prop_assert!(sector_states(&bytes, &expected).len() <= bytes.len() / 512);
        }
        let expected = Expected { key: whole, logical_block_bytes };
        prop_assert_eq!(classify(&encoded(&whole), &expected), Class::Intact);
    }

    #[test]
    fn a_stamp_is_found_in_every_sector_of_any_run(
        key in keys(1_u32..=16), pick in any::<Index>(),
    ) {
        let bytes = encoded(&key);
        let index = pick.index(key.sectors() as usize);
        let stamp = find_stamp(&bytes[index * 512..]).unwrap();
        prop_assert_eq!(stamp.key(), key);
        prop_assert_eq!(stamp.sector as usize, index);
    }
}
