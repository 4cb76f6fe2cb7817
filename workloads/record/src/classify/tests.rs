use super::*;
use crate::{RecordError, encode};

const KEY: RecordKey = RecordKey {
    run: RunId([0xa5; 16]),
    stream: 1,
    sequence: 7,
    version: 5,
    address: 65_536,
    length: 8192,
};
const BLOCK: usize = 4096;

fn bytes_of(key: RecordKey) -> Vec<u8> {
    let mut bytes = vec![0; key.length as usize];
    encode(&key, &mut bytes).unwrap();
    bytes
}

fn version(version: u32) -> Vec<u8> {
    bytes_of(RecordKey { version, ..KEY })
}

fn named(bytes: &[u8]) -> Class {
    classify(bytes, &Expected::new(KEY, 4096).unwrap())
}

fn in_512_blocks(bytes: &[u8]) -> Class {
    classify(bytes, &Expected::new(KEY, 512).unwrap())
}

/// The own record, with everything from `at` on taken from `other`.
fn own_until(at: usize, other: &[u8]) -> Vec<u8> {
    [&version(5)[..at], &other[at..]].concat()
}

#[test]
fn the_record_itself_is_intact_and_bytes_behind_it_do_not_matter() {
    let mut bytes = version(5);
    assert_eq!(named(&bytes), Class::Intact);
    bytes.extend_from_slice(b"the next record");
    assert_eq!(named(&bytes), Class::Intact);
}

#[test]
fn no_bytes_and_zero_bytes_are_absent() {
    for size in [0, 1, 511, 512, 8192, 9000] {
        assert_eq!(named(&vec![0; size]), Class::Absent);
    }
}

#[test]
fn a_file_that_ends_early_is_short_and_says_how_much_of_it_is_good() {
    let mut bytes = version(5);
    bytes.truncate(1100);
    let mix = SectorMix {
        own: 2,
        ..SectorMix::default()
    };
    assert_eq!(
        named(&bytes),
        Class::Short {
            have_bytes: 1100,
            own_bytes: 1100,
            mix
        }
    );
    bytes[600] ^= 1;
    let mix = SectorMix {
        own: 1,
        damaged: 1,
        ..SectorMix::default()
    };
    assert_eq!(
        named(&bytes),
        Class::Short {
            have_bytes: 1100,
            own_bytes: 600,
            mix
        }
    );
}

#[test]
fn a_flipped_bit_anywhere_is_corrupt() {
    let mut bytes = version(5);
    for bit in (0..bytes.len() * 8).step_by(3) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let sector = u32::try_from(bit / 4096).unwrap();
        let class = named(&bytes);
        assert!(
            matches!(class, Class::Corrupt { own_sectors: 15, first_bad_sector: at, .. } if at == sector),
            "bit {bit}: {class:?}"
        );
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_whole_older_version_is_stale_and_a_newer_one_is_newer() {
    assert_eq!(named(&version(4)), Class::Stale { version: 4 });
    assert_eq!(named(&version(6)), Class::Newer { version: 6 });
    let reused = bytes_of(RecordKey {
        version: 2,
        sequence: 90,
        ..KEY
    });
    assert_eq!(named(&reused), Class::Stale { version: 2 });
}

#[test]
fn a_longer_older_version_is_stale_and_a_shorter_one_is_torn() {
    let longer = bytes_of(RecordKey {
        version: 4,
        length: 16_384,
        ..KEY
    });
    assert_eq!(named(&longer), Class::Stale { version: 4 });
    let mut shorter = bytes_of(RecordKey {
        version: 4,
        length: 4096,
        ..KEY
    });
    shorter.resize(8192, 0);
    assert!(matches!(
        named(&shorter),
        Class::Torn {
            own_sectors: 0,
            first_bad_sector: 0,
            ..
        }
    ));
}

#[test]
fn a_record_that_belongs_elsewhere_is_misdirected() {
    for found in [
        RecordKey { stream: 2, ..KEY },
        RecordKey { address: 0, ..KEY },
        RecordKey { sequence: 8, ..KEY },
        RecordKey {
            address: 0,
            length: 1 << 20,
            ..KEY
        },
    ] {
        assert_eq!(named(&bytes_of(found)), Class::Misdirected { found });
    }
}

#[test]
fn blocks_of_two_sources_are_torn() {
    let foreign = vec![0x6b; 8192];
    for other in [
        vec![0; 8192],
        foreign,
        version(4),
        bytes_of(RecordKey { stream: 2, ..KEY }),
    ] {
        let class = named(&own_until(BLOCK, &other));
        assert!(
            matches!(
                class,
                Class::Torn {
                    own_sectors: 8,
                    first_bad_sector: 8,
                    ..
                }
            ),
            "{class:?}"
        );
    }
}

#[test]
fn one_block_of_two_sources_is_shorn_and_torn_where_blocks_are_smaller() {
    for other in [vec![0; 8192], vec![0x6b; 8192], version(4), version(6)] {
        let bytes = own_until(512 * 11, &other);
        let shorn = named(&bytes);
        assert!(
            matches!(
                shorn,
                Class::Shorn {
                    own_sectors: 11,
                    first_bad_sector: 11,
                    ..
                }
            ),
            "{shorn:?}"
        );
        let torn = in_512_blocks(&bytes);
        assert!(
            matches!(
                torn,
                Class::Torn {
                    own_sectors: 11,
                    first_bad_sector: 11,
                    ..
                }
            ),
            "{torn:?}"
        );
    }
}

#[test]
fn two_older_versions_are_torn_between_blocks_and_shorn_inside_one() {
    let whole_blocks = [&version(3)[..BLOCK], &version(4)[BLOCK..]].concat();
    assert!(matches!(
        named(&whole_blocks),
        Class::Torn {
            own_sectors: 0,
            first_bad_sector: 0,
            ..
        }
    ));
    let inside = [&version(3)[..512], &version(4)[512..]].concat();
    assert!(matches!(
        named(&inside),
        Class::Shorn {
            own_sectors: 0,
            first_bad_sector: 0,
            ..
        }
    ));
}

#[test]
fn a_sector_spliced_from_two_writes_is_shorn_even_in_512_byte_blocks() {
    for other in [vec![0; 8192], vec![0x6b; 8192], version(4)] {
        for sector in [0_u32, 3] {
            let mut head_survives = version(5);
            let mut tail_survives = version(5);
            let start = sector as usize * 512;
            let (middle, end) = (start + 201, start + 512);
            head_survives[middle..end].copy_from_slice(&other[middle..end]);
            tail_survives[start..middle].copy_from_slice(&other[start..middle]);
            for bytes in [head_survives, tail_survives] {
                let class = in_512_blocks(&bytes);
                assert!(
                    matches!(class, Class::Shorn { own_sectors: 15, first_bad_sector: at, .. } if at == sector),
                    "{class:?}"
                );
            }
        }
    }
}

#[test]
fn damage_outweighs_a_tear_and_a_shorn_block_outweighs_damage() {
    let mut torn = own_until(BLOCK, &version(4));
    torn[20] ^= 1;
    assert!(matches!(
        named(&torn),
        Class::Corrupt {
            first_bad_sector: 0,
            own_sectors: 7,
            ..
        }
    ));
    let mut shorn = own_until(512, &version(4));
    shorn[BLOCK + 20] ^= 1;
    assert!(matches!(
        named(&shorn),
        Class::Shorn {
            first_bad_sector: 1,
            own_sectors: 1,
            ..
        }
    ));
}

#[test]
fn a_damaged_older_version_is_corrupt_and_never_stale() {
    let mut bytes = version(4);
    bytes[700] ^= 0x10;
    assert!(matches!(
        named(&bytes),
        Class::Corrupt {
            own_sectors: 0,
            first_bad_sector: 1,
            ..
        }
    ));
}

#[test]
fn another_run_and_raw_data_are_foreign() {
    let run = RunId([0x5a; 16]);
    let class = named(&bytes_of(RecordKey { run, ..KEY }));
    assert!(matches!(class, Class::Foreign { run: Some(found), .. } if found == run));
    let class = named(&[0xffu8; 8192]);
    assert!(matches!(class, Class::Foreign { run: None, .. }));
    let mut one_byte = vec![0; 8192];
    one_byte[8191] = 1;
    assert!(matches!(named(&one_byte), Class::Foreign { .. }));
}

#[test]
fn own_sectors_in_each_others_places_are_not_own() {
    let mut bytes = version(5);
    let (left, right) = bytes.split_at_mut(BLOCK);
    left.swap_with_slice(right);
    assert_eq!(named(&bytes), Class::Misdirected { found: KEY });
    let states = sector_states(&bytes, &Expected::new(KEY, 4096).unwrap());
    assert!(matches!(states[0], SectorState::OtherRecord(stamp) if stamp.sector == 8));
}

#[test]
fn blocks_lie_on_the_objects_grid_and_not_on_the_records() {
    let key = RecordKey {
        address: 2048,
        length: 4096,
        ..KEY
    };
    let mut bytes = bytes_of(key);
    bytes[2048..].fill(0);
    let expected = Expected::new(key, 4096).unwrap();
    assert!(matches!(
        classify(&bytes, &expected),
        Class::Torn { own_sectors: 4, .. }
    ));
    let inside_one = Expected::new(key, 8192).unwrap();
    assert!(matches!(
        classify(&bytes, &inside_one),
        Class::Shorn { own_sectors: 4, .. }
    ));
}

#[test]
fn a_block_size_that_does_not_exist_is_refused_or_rounded_down() {
    for logical_block_bytes in [0, 1, 511, 513, 6000, 131_072, u32::MAX] {
        let refused = Expected::new(KEY, logical_block_bytes);
        assert_eq!(
            refused,
            Err(RecordError::LogicalBlock {
                logical_block_bytes
            })
        );
    }
    let rounded = Expected {
        key: KEY,
        logical_block_bytes: 6000,
    };
    let bytes = own_until(BLOCK, &version(4));
    assert_eq!(classify(&bytes, &rounded), named(&bytes));
}

#[test]
fn a_key_that_no_record_has_owns_nothing() {
    let key = RecordKey { version: 0, ..KEY };
    let expected = Expected {
        key,
        logical_block_bytes: 512,
    };
    assert_eq!(
        classify(&version(1), &expected),
        Class::Newer { version: 1 }
    );
    assert_eq!(
        classify(
            &[],
            &Expected {
                key: RecordKey { length: 0, ..KEY },
                ..expected
            }
        ),
        Class::Absent
    );
}
