//! The loss window, the order promise, and the workload's own recovery.

mod common;

use common::*;
use plugpull_model::ledger::Ledger;
use plugpull_model::scenario::Order;
use plugpull_model::stack::Filesystem;
use plugpull_model::verdict::{Detection, Fate, FindingKind};
use plugpull_record::RecordKey;

const ALL: u64 = 100;

#[test]
fn a_loss_younger_than_the_window_is_contractual() {
    let mut image = Image::log(10);
    image.lose(0, 9);
    // Acknowledged at 95 ms, cut at 100 ms.
    let contractual = |window_ms, image: &Image| {
        let contract = window(window_ms, Order::None);
        only(image.judged_under(&contract, &steady(10), ALL)).contractual
    };
    assert!(contractual(6, &image));
    assert!(!contractual(5, &image));
    assert!(!contractual(0, &image));
    let mut bytes = record(&key(&image.cell, 0, 9));
    bytes[4096..].fill(0);
    image.plant(0, 9, &bytes);
    assert!(contractual(6, &image), "torn is no worse than lost");
}

#[test]
fn without_a_window_not_even_a_loss_at_the_moment_of_the_cut_is_contractual() {
    let mut image = Image::log(10);
    image.lose(0, 9);
    let contract = window(0, Order::None);
    assert!(!only(image.judged_under(&contract, &steady(10), 95)).contractual);
}

#[test]
fn an_unissued_version_inside_the_window_is_not_contractual() {
    let mut image = Image::log(10);
    let newer = RecordKey {
        version: 2,
        ..key(&image.cell, 0, 9)
    };
    image.plant(0, 9, &record(&newer));
    let contract = window(1000, Order::None);
    assert!(!only(image.judged_under(&contract, &steady(10), ALL)).contractual);
}

#[test]
fn under_the_order_promise_a_gap_is_unserializable_and_no_longer_contractual() {
    let mut image = Image::log(10);
    image.lose(0, 8);
    let breaches = image.judged_under(&window(1000, Order::Prefix), &steady(10), ALL);
    assert_eq!(
        kinds(&breaches),
        [
            (FindingKind::Lost, Some(8)),
            (FindingKind::Unserializable, Some(8))
        ]
    );
    assert!(
        breaches
            .iter()
            .all(|b| !b.contractual && b.expected == Fate::Required)
    );
    // Without the promise it is contractual.
    let breach = only(image.judged_under(&window(1000, Order::None), &steady(10), ALL));
    assert!(breach.contractual);
}

#[test]
fn under_the_order_promise_a_lost_tail_stays_contractual() {
    let mut image = Image::log(10);
    image.lose(0, 8);
    image.lose(0, 9);
    let breaches = image.judged_under(&window(1000, Order::Prefix), &steady(10), ALL);
    assert_eq!(
        kinds(&breaches),
        [(FindingKind::Lost, Some(8)), (FindingKind::Lost, Some(9))]
    );
    assert!(breaches.iter().all(|b| b.contractual));
}

/// Stream 0 acknowledges its record at 5; stream 1 issues one at `issued`.
fn two_streams(issued: u64) -> Ledger {
    Lines::default()
        .issued(op(0, 0), 1)
        .acknowledged(op(0, 0), 5)
        .issued(op(1, 0), issued)
        .complete(ALL)
        .ledger()
}

#[test]
fn the_order_promise_holds_between_streams_from_acknowledgement_to_issue() {
    let mut image = Image::whole(Filesystem::Ext4, 2, 1);
    image.lose(0, 0);
    let promise = window(1000, Order::Prefix);
    assert_eq!(
        kinds(&image.judged_under(&promise, &two_streams(6), ALL)),
        [
            (FindingKind::Lost, Some(0)),
            (FindingKind::Unserializable, Some(0))
        ]
    );
    // Issued before the acknowledgement, or at a moment that cannot be told from it.
    for issued in [4, 5] {
        let breach = only(image.judged_under(&promise, &two_streams(issued), ALL));
        assert!(breach.contractual);
    }
    image.lose(1, 0);
    assert!(only(image.judged_under(&promise, &two_streams(6), ALL)).contractual);
}

#[test]
fn a_permitted_record_that_is_gone_breaks_no_order() {
    let mut image = Image::log(2);
    image.lose(0, 0);
    let ledger = Lines::default()
        .issued(op(0, 0), 1)
        .failed(op(0, 0), 2)
        .issued(op(0, 1), 3)
        .acknowledged(op(0, 1), 4)
        .ledger();
    assert_eq!(
        image.judged_under(&window(0, Order::Prefix), &ledger, 9),
        Vec::new()
    );
}

#[test]
fn an_acknowledged_record_that_recovery_does_not_give_back_is_lost() {
    let mut image = Image::log(10);
    image.withhold(0, 4);
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(breach.kind, FindingKind::Lost);
    assert_eq!(breach.record.map(|r| r.sequence.0), Some(4));
    assert!(breach.observed.contains("recovery did not give it back"));
    assert!(breach.newer_survives);
    assert_eq!(breach.detection, Detection::Silent);
    // Issued only: recovery may leave it.
    let ledger = Lines::default().issued(op(0, 4), 1).ledger();
    assert_eq!(image.judged(&ledger, ALL), Vec::new());
}

#[test]
fn a_recovery_that_stops_at_a_failed_record_hides_the_later_ones() {
    let mut image = Image::log(3);
    image.lose(0, 0);
    image.withhold(0, 1);
    image.withhold(0, 2);
    let ledger = Lines::default()
        .issued(op(0, 0), 1)
        .failed(op(0, 0), 2)
        .issued(op(0, 1), 3)
        .acknowledged(op(0, 1), 4)
        .issued(op(0, 2), 5)
        .complete(9)
        .ledger();
    let breach = only(image.judged(&ledger, 9));
    assert_eq!(breach.kind, FindingKind::Lost);
    assert_eq!(breach.record.map(|r| r.sequence.0), Some(1));
    assert!(
        !breach.newer_survives,
        "what recovery hid does not survive it"
    );
    image.observation.recovered.records.insert(op(0, 1));
    assert_eq!(image.judged(&ledger, 9), Vec::new());
}

#[test]
fn a_recovery_that_drops_one_record_inside_the_window_breaks_the_order_promise() {
    let mut image = Image::log(10);
    image.withhold(0, 8);
    let promise = window(1000, Order::Prefix);
    let breaches = image.judged_under(&promise, &steady(10), ALL);
    assert_eq!(
        kinds(&breaches),
        [
            (FindingKind::Lost, Some(8)),
            (FindingKind::Unserializable, Some(8))
        ]
    );
    assert!(breaches.iter().all(|b| !b.contractual));
    image.withhold(0, 9);
    let breaches = image.judged_under(&promise, &steady(10), ALL);
    assert_eq!(breaches.len(), 2);
    assert!(breaches.iter().all(|b| b.contractual));
}

#[test]
fn a_recovery_that_drops_a_record_and_keeps_one_of_another_stream_breaks_the_order_promise() {
    let mut image = Image::whole(Filesystem::Ext4, 2, 1);
    image.withhold(0, 0);
    let promise = window(1000, Order::Prefix);
    assert_eq!(
        kinds(&image.judged_under(&promise, &two_streams(6), ALL)),
        [
            (FindingKind::Lost, Some(0)),
            (FindingKind::Unserializable, Some(0))
        ]
    );
    image.withhold(1, 0);
    assert!(only(image.judged_under(&promise, &two_streams(6), ALL)).contractual);
}

#[test]
fn a_record_given_back_that_is_not_there_is_corrupt() {
    let mut image = Image::log(10);
    image.lose(0, 9);
    image.observation.recovered.records.insert(op(0, 9));
    let issued = Lines::default().issued(op(0, 9), 1).ledger();
    let breach = only(image.judged(&issued, ALL));
    assert_eq!(
        (breach.kind, breach.expected),
        (FindingKind::Corrupt, Fate::Permitted)
    );
    let breach = only(image.judged(&steady(9), 90));
    assert_eq!(
        (breach.kind, breach.expected),
        (FindingKind::Corrupt, Fate::Forbidden)
    );
    // Required, it is lost by its raw bytes, once, and the words say the rest.
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(breach.kind, FindingKind::Lost);
    assert!(
        breach
            .observed
            .contains("gave the record back all the same")
    );
    image.withhold(0, 9);
    assert_eq!(image.judged(&steady(9), 90), Vec::new());
}

#[test]
fn a_record_given_back_that_the_plan_never_issues_is_unexpected() {
    let mut version = op(0, 1);
    version.version = 7;
    for id in [op(0, 10), op(5, 0), op(0, u64::MAX), version] {
        let mut image = Image::log(10);
        image.observation.recovered.records.insert(id);
        let breach = only(image.judged(&steady(10), ALL));
        assert_eq!(breach.kind, FindingKind::Unexpected);
        assert_eq!(breach.expected, Fate::Forbidden);
        assert_eq!(
            breach.record.map(|r| (r.stream, r.sequence)),
            Some((id.stream, id.sequence))
        );
    }
}

#[test]
fn a_version_from_nowhere_is_not_taken_for_the_planned_one() {
    let mut image = Image::log(10);
    image.lose(0, 9);
    let mut id = op(0, 9);
    id.version = 7;
    image.observation.recovered.records.insert(id);
    let breach = only(image.judged(&steady(9), 90));
    assert_eq!(breach.kind, FindingKind::Unexpected);
}

#[test]
fn a_version_from_nowhere_that_is_both_there_and_given_back_is_reported_once() {
    let mut image = Image::log(10);
    let newer = RecordKey {
        version: 2,
        ..key(&image.cell, 0, 9)
    };
    image.plant(0, 9, &record(&newer));
    let mut id = op(0, 9);
    id.version = 2;
    image.observation.recovered.records.insert(id);
    assert_eq!(
        only(image.judged(&steady(9), 90)).kind,
        FindingKind::Unexpected
    );
}
