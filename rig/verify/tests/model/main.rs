//! A second oracle, written for nothing but to be obviously right, agrees on random small workloads,
//! ledgers, images and contracts. It knows what was planted and classifies no bytes.

#[path = "../common/mod.rs"]
mod common;

mod case;
mod naive;

use case::case;
use common::{Image, Lines, RUN, op, steady, window};
use naive::{Found, found};
use plugpull_model::observation::ObservedContent;
use plugpull_model::scenario::Order;
use plugpull_model::units::Position;
use plugpull_verify::{check_ledger, inspect, judge};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_oracle_and_a_naive_one_find_the_same(case in case()) {
        let image = case.image();
        let ledger = Lines(case.lines[1..].to_vec()).ledger();
        prop_assert_eq!(check_ledger(&image.cell, &ledger), Ok(()));
        let inspection = inspect(&image.cell, RUN, &image.observation);
        let judged = || judge(&image.cell, &case.contract, &ledger, &inspection, Position(case.cut), case.cut_ns);
        let breaches = judged();
        let mut have: Vec<Found> = breaches.iter().map(found).collect();
        let mut want = case.naive();
        have.sort_unstable();
        want.sort_unstable();
        prop_assert_eq!(have, want);
        // Pure: the same input gives the same answer, from a fresh inspection too.
        prop_assert_eq!(&judged(), &breaches);
        prop_assert_eq!(&inspect(&image.cell, RUN, &image.observation.clone()), &inspection);
    }

    #[test]
    fn bytes_of_any_kind_and_length_are_judged(
        bytes in prop::collection::vec(any::<u8>(), 0..20_000),
        fails in prop::option::of(any::<i32>()),
        records in 0..6u32,
        block in any::<u32>(),
        length in prop::sample::select(vec![0u32, 1, 511, 512, 4096, 1 << 20, u32::MAX]),
        given in prop::collection::btree_set((0..3u32, 0..9u64), 0..5),
    ) {
        let mut image = Image::log(1);
        image.cell.workload.record_bytes = length;
        image.cell.workload.writers[0].records = records;
        image.cell.drive.logical_block_bytes = block;
        image.observation.objects[0].content = match fails {
            None => ObservedContent::Bytes(bytes),
            Some(errno) => ObservedContent::Unreadable { before: bytes, errno },
        };
        image.observation.recovered.records = given.into_iter().map(|(s, n)| op(s, n)).collect();
        image.used();
        let first = image.judged_under(&window(u32::MAX, Order::Prefix), &steady(5), 30);
        prop_assert_eq!(first, image.judged_under(&window(u32::MAX, Order::Prefix), &steady(5), 30));
    }
}
