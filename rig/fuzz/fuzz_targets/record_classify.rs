//! `classify` names any bytes, once, and calls them intact only if they are the record.
//!
//! The input is an expected record, whether to start from that record or from raw bytes, and then
//! edits: so the fuzzer gets past the checksums without having to guess one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plugpull_record::{
    Class, Expected, RecordKey, RunId, SectorMix, SectorState, classify, decode, encode,
    encode_sector, find_stamp, sector_states,
};

const MAX_SECTORS: u32 = 24;

/// Takes numbers off the front of the input; at its end they are zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let key = RecordKey {
        run: RunId([input.byte() % 2; 16]),
        stream: u32::from(input.byte()),
        sequence: u64::from(input.byte()),
        version: 1 + u32::from(input.byte()),
        address: u64::from(input.byte()) * 512,
        length: (1 + u32::from(input.byte()) % MAX_SECTORS) * 512,
    };
    let logical_block_bytes = 512 << (input.byte() % 8);
    let expected = Expected::new(key, logical_block_bytes).expect("made to be valid");
    let mut own = vec![0; key.length as usize];
    encode(&key, &mut own).expect("made to be valid");

    if input.byte() == 0 {
        let raw = input.0;
        check(raw, &own, &expected);
        // Any expectation at all, from the same bytes.
        let mut any = Input(raw);
        let mut word = || u32::from(any.short()) << 16 | u32::from(any.short());
        let key = RecordKey {
            stream: word(),
            version: word(),
            address: u64::from(word()) << 32 | u64::from(word()),
            length: word(),
            ..key
        };
        let expected = Expected {
            key,
            logical_block_bytes: word(),
        };
        classify(raw, &expected);
        sector_states(raw, &expected);
        return;
    }

    let mut bytes = own.clone();
    while !input.is_empty() {
        edit(&mut bytes, &key, &mut input);
    }
    check(&bytes, &own, &expected);
});

/// One mutation of the image.
fn edit(bytes: &mut Vec<u8>, key: &RecordKey, input: &mut Input<'_>) {
    let action = input.byte();
    let at = usize::from(input.short());
    if bytes.is_empty() {
        return;
    }
    let sector_start = at % bytes.len() / 512 * 512;
    let index = u32::try_from(sector_start / 512).expect("a record has few sectors");
    match action % 6 {
        0 => {
            let bit = at % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        1 => bytes.truncate(at % bytes.len()),
        2 => {
            let start = at % bytes.len();
            let end = bytes.len().min(start + usize::from(input.short()));
            bytes[start..end].fill(input.byte());
        }
        3 => {
            let to = usize::from(input.byte()) * 512 % bytes.len() / 512 * 512;
            let size = 512.min(bytes.len() - sector_start).min(bytes.len() - to);
            bytes.copy_within(sector_start..sector_start + size, to);
        }
        _ => {
            // A sector of another record, or of another version, whole or in part.
            let other = RecordKey {
                run: if action & 8 == 0 {
                    key.run
                } else {
                    RunId([2; 16])
                },
                stream: key.stream ^ u32::from(action >> 7),
                version: 1 + u32::from(input.byte()),
                ..*key
            };
            let mut sector = [0; 512];
            if encode_sector(&other, index, &mut sector).is_err() {
                return;
            }
            let end = bytes.len().min(sector_start + 512);
            let start = (sector_start + usize::from(input.byte()) * 2).min(end);
            bytes[start..end].copy_from_slice(&sector[start - sector_start..end - sector_start]);
        }
    }
}

fn check(bytes: &[u8], own: &[u8], expected: &Expected) {
    let class = classify(bytes, expected);
    let states = sector_states(bytes, expected);
    let part = &bytes[..bytes.len().min(own.len())];

    assert_eq!(class == Class::Intact, part == own, "{class}");
    assert_eq!(
        class == Class::Absent,
        part.iter().all(|byte| *byte == 0),
        "{class}"
    );
    assert_eq!(states.len(), part.len() / 512);
    for ((state, have), want) in states.iter().zip(part.chunks(512)).zip(own.chunks(512)) {
        assert_eq!(*state == SectorState::Own, have == want, "{state}");
    }
    let counted: SectorMix = states.iter().collect();
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
            assert_eq!((mix, mix.own), (counted, own_sectors));
            assert_ne!(states[first_bad_sector as usize], SectorState::Own);
            assert_eq!(part.len(), own.len());
        }
        Class::Short {
            have_bytes,
            own_bytes,
            mix,
        } => {
            assert_eq!((have_bytes as usize, mix), (part.len(), counted));
            assert_eq!(part[..own_bytes as usize], own[..own_bytes as usize]);
        }
        Class::Foreign { mix, .. } => {
            assert_eq!(
                (mix, mix.zero + mix.foreign),
                (counted, expected.key.sectors())
            );
        }
        Class::Stale { version } => {
            assert!(version < expected.key.version);
            assert_eq!(counted.older, expected.key.sectors());
        }
        Class::Newer { version } => {
            assert!(version > expected.key.version);
            assert_eq!(counted.newer, expected.key.sectors());
        }
        Class::Misdirected { found } => {
            assert_eq!(found.run, expected.key.run);
            assert_eq!(
                counted.own + counted.older + counted.newer + counted.damaged,
                0
            );
        }
        Class::Intact | Class::Absent => {}
    }
    if let Ok(key) = decode(bytes) {
        assert_eq!(key.length as usize, bytes.len());
    }
    if let Some(stamp) = find_stamp(bytes) {
        stamp
            .key()
            .check()
            .expect("a stamp that is found names a possible record");
    }
}
