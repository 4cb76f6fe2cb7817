//! Vectors of format 1. They may never change: a record on a drive outlives the build that wrote
//! it.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use plugpull_record::{RecordKey, RunId, encode, encode_sector};

const KEY: RecordKey = RecordKey {
    run: RunId([
        0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee,
        0xff,
    ]),
    stream: 3,
    sequence: 1_000_000_007,
    version: 2,
    address: 0x0001_2345_6000,
    length: 4096,
};

fn checksum(key: &RecordKey) -> u32 {
    let mut bytes = vec![0; key.length as usize];
    encode(key, &mut bytes).unwrap();
    crc32c::crc32c(&bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_4096_bytes_of_a_fixed_key_never_change() {
    assert_eq!(format!("{:08x}", checksum(&KEY)), "f1e6a303");
}

#[test]
fn the_smallest_and_the_largest_record_never_change() {
    let smallest = RecordKey { length: 512, ..KEY };
    let largest = RecordKey {
        length: 1 << 20,
        ..KEY
    };
    assert_eq!(format!("{:08x}", checksum(&smallest)), "627f1fa8");
    assert_eq!(format!("{:08x}", checksum(&largest)), "2519e03d");
}

#[test]
fn header_payload_and_stamp_never_change() {
    let mut first = [0; 512];
    encode_sector(&KEY, 0, &mut first).unwrap();
    assert_eq!(
        hex(&first[..64]),
        "504c55475052454300112233445566778899aabbccddeeff07ca9a3b00000000006045230100000003000000020000000010000001000000222939bf05935955"
    );
    assert_eq!(hex(&first[64..80]), "b5e6a8a9edeb1441963879f584e3760e");
    let mut last = [0; 512];
    encode_sector(&KEY, 7, &mut last).unwrap();
    assert_eq!(hex(&last[..16]), "928f5cec90da86d04775e4bfae983668");
    assert_eq!(
        hex(&last[448..]),
        "504c55475053454300112233445566778899aabbccddeeff07ca9a3b000000000060452301000000030000000200000000100000010000000700000017cf42a0"
    );
}
