//! How fast records are written and recognised, on one core:
//! `cargo run --release -p plugpull-record --example speed`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plugpull_record::{Class, Expected, RecordError, RecordKey, RunId, classify, decode, encode};

const TIME_PER_FIGURE: Duration = Duration::from_millis(400);

fn main() -> Result<(), RecordError> {
    println!("GB/s       encode  intact  decode   stale   torn  absent");
    for length in [512_u32, 4096, 16_384, 65_536, 1 << 20] {
        let key = RecordKey {
            run: RunId([1; 16]),
            stream: 0,
            sequence: 1,
            version: 2,
            address: 0,
            length,
        };
        let expected = Expected::new(key, 512)?;
        let mut own = vec![0; expected.key.length as usize];
        encode(&key, &mut own)?;
        let mut older = own.clone();
        encode(&RecordKey { version: 1, ..key }, &mut older)?;
        let half = own.len() / 2;
        let torn = [&own[..half], &older[half..]].concat();
        let zero = vec![0; own.len()];
        assert_eq!(classify(&own, &expected), Class::Intact);

        let mut out = own.clone();
        let figures = [
            rate(length, || {
                encode(black_box(&key), black_box(&mut out)).is_ok()
            }),
            rate(length, || {
                classify(black_box(&own), &expected) == Class::Intact
            }),
            rate(length, || decode(black_box(&own)).is_ok()),
            rate(length, || {
                classify(black_box(&older), &expected) == Class::Intact
            }),
            rate(length, || {
                classify(black_box(&torn), &expected) == Class::Intact
            }),
            rate(length, || {
                classify(black_box(&zero), &expected) == Class::Absent
            }),
        ];
        print!("{length:>8} B");
        for figure in figures {
            print!(" {figure:>7.2}");
        }
        println!();
    }
    Ok(())
}

/// The best of many slices, so that a busy machine tells the same as an idle one.
fn rate(length: u32, mut work: impl FnMut() -> bool) -> f64 {
    let repeats = (1 << 21) / length;
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < TIME_PER_FIGURE {
        let slice = Instant::now();
        for _ in 0..repeats {
            black_box(work());
        }
        best = best.min(slice.elapsed());
    }
    f64::from(repeats * length) / best.as_secs_f64() / 1e9
}
