//! Every kind of breach of a single record, and the near miss that is none.

mod common;

use common::*;
use plugpull_model::observation::{ObservedContent, ObservedObject};
use plugpull_model::stack::Filesystem;
use plugpull_model::units::{ByteOffset, Position, Sector};
use plugpull_model::verdict::{Detection, Fate, FindingKind};
use plugpull_record::{RecordKey, RunId};
use plugpull_verify::check_ledger;

const ALL: u64 = 100;

/// Whatever lies there, it is no breach where the record was issued and not acknowledged.
#[track_caller]
fn permitted(image: &Image, sequence: u64) {
    let mut lines = Lines::default();
    for n in 0..10 {
        lines = lines.issued(op(0, n), 10 * n + 1);
        if n != sequence {
            lines = lines.acknowledged(op(0, n), 10 * n + 5);
        }
    }
    let ledger = lines.complete(ALL).ledger();
    assert_eq!(image.judged(&ledger, ALL), Vec::new());
}

#[track_caller]
fn required(image: &Image, sequence: u64, kind: FindingKind) {
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(breach.kind, kind, "{breach:#?}");
    assert_eq!(breach.record.as_ref().map(|r| r.sequence.0), Some(sequence));
    assert_eq!(breach.expected, Fate::Required);
    assert_eq!(breach.acknowledged_at, Some(Position(10 * sequence + 5)));
    // The header is line 1, then two lines a record.
    assert_eq!(breach.ledger_line, Some(2 * sequence + 3));
    assert_eq!(
        breach.offset,
        Some(ByteOffset(sequence * u64::from(RECORD_BYTES)))
    );
    assert_eq!(breach.sector, None);
    assert!(!breach.contractual && !breach.after_recovery);
    permitted(image, sequence);
}

#[test]
fn an_image_with_every_record_whole_breaches_nothing_at_any_cut_behind_the_last_issue() {
    let image = Image::log(10);
    for cut in 91..=ALL {
        assert_eq!(image.judged(&steady(10), cut), Vec::new());
    }
}

#[test]
fn an_acknowledged_record_that_reads_as_zeros_is_lost_and_a_newer_one_survives() {
    let mut image = Image::log(10);
    image.lose(0, 4);
    required(&image, 4, FindingKind::Lost);
    let breach = only(image.judged(&steady(10), ALL));
    assert!(breach.newer_survives);
    assert_eq!(breach.detection, Detection::Silent);
}

#[test]
fn the_last_record_lost_has_no_newer_survivor() {
    let mut image = Image::log(10);
    image.lose(0, 9);
    assert!(!only(image.judged(&steady(10), ALL)).newer_survives);
}

#[test]
fn a_record_is_required_from_the_position_of_its_acknowledgement_on() {
    let mut image = Image::log(10);
    for sequence in 4..10 {
        image.lose(0, sequence);
    }
    assert_eq!(image.judged(&steady(10), 44), Vec::new());
    assert_eq!(
        kinds(&image.judged(&steady(10), 45)),
        [(FindingKind::Lost, Some(4))]
    );
}

#[test]
fn a_file_that_ends_before_or_inside_an_acknowledged_record_has_lost_it() {
    for end in [
        9 * RECORD_BYTES,
        9 * RECORD_BYTES + 1,
        10 * RECORD_BYTES - 1,
    ] {
        let mut image = Image::log(10);
        image.bytes(0).truncate(end as usize);
        image.withhold(0, 9);
        required(&image, 9, FindingKind::Lost);
    }
}

#[test]
fn the_words_of_a_loss_say_how_much_of_the_record_there_is() {
    let mut image = Image::log(10);
    image.bytes(0).truncate(9 * RECORD_BYTES as usize + 100);
    image.withhold(0, 9);
    let observed = only(image.judged(&steady(10), ALL)).observed;
    assert!(observed.starts_with("short at 100 bytes"), "{observed}");
    image.bytes(0).truncate(9 * RECORD_BYTES as usize);
    let observed = only(image.judged(&steady(10), ALL)).observed;
    assert!(observed.contains("ends at byte 73728"), "{observed}");
}

#[test]
fn a_file_that_goes_on_behind_the_last_record_has_lost_nothing() {
    let mut image = Image::log(10);
    image.bytes(0).extend([0xee; 777]);
    assert_eq!(image.judged(&steady(10), ALL), Vec::new());
}

#[test]
fn every_acknowledged_record_of_a_missing_file_is_lost() {
    let mut image = Image::log(10);
    image.observation.objects[0].content = ObservedContent::Missing;
    image.observation.recovered.records.clear();
    let breaches = image.judged(&steady(10), 25);
    let lost = [0, 1, 2].map(|n| (FindingKind::Lost, Some(n)));
    assert_eq!(kinds(&breaches), lost);
    image.observation.objects.clear();
    assert_eq!(kinds(&image.judged(&steady(10), 25)), lost);
}

#[test]
fn a_missing_file_is_lost_although_none_of_its_records_is_required_yet() {
    let mut image = Image::log(10);
    image.observation.objects[0].content = ObservedContent::Missing;
    image.observation.recovered.records.clear();
    let breach = only(image.judged(&steady(10), 3));
    assert_eq!((breach.kind, breach.record), (FindingKind::Lost, None));
    assert_eq!(breach.object, "log-0");
    // An empty file is what was made durable.
    image.observation.objects[0].content = ObservedContent::Bytes(Vec::new());
    assert_eq!(image.judged(&steady(10), 3), Vec::new());
}

#[test]
fn a_record_mixed_of_whole_logical_blocks_is_torn() {
    let mut image = Image::log(10);
    let mut bytes = record(&key(&image.cell, 0, 2));
    bytes[4096..].fill(0);
    image.plant(0, 2, &bytes);
    required(&image, 2, FindingKind::Torn);
}

#[test]
fn a_record_mixed_inside_a_logical_block_is_shorn() {
    let mut image = Image::log(10);
    let mut bytes = record(&key(&image.cell, 0, 2));
    bytes[4096 + 512..].fill(0);
    image.plant(0, 2, &bytes);
    required(&image, 2, FindingKind::Shorn);
    // The same bytes on a drive of 512-byte blocks are torn.
    image.cell.drive.logical_block_bytes = 512;
    required(&image, 2, FindingKind::Torn);
}

#[test]
fn a_flipped_bit_is_corrupt() {
    let mut image = Image::log(10);
    let mut bytes = record(&key(&image.cell, 0, 2));
    bytes[5000] ^= 0x10;
    image.plant(0, 2, &bytes);
    required(&image, 2, FindingKind::Corrupt);
}

#[test]
fn raw_data_and_another_runs_record_are_foreign() {
    let mut image = Image::log(10);
    image.plant(0, 2, &[0xaa; RECORD_BYTES as usize]);
    required(&image, 2, FindingKind::Foreign);
    let other = RecordKey {
        run: RunId([9; 16]),
        ..key(&image.cell, 0, 2)
    };
    image.plant(0, 2, &record(&other));
    required(&image, 2, FindingKind::Foreign);
}

#[test]
fn another_record_of_this_run_is_misdirected() {
    let mut image = Image::log(10);
    let neighbour = record(&key(&image.cell, 0, 1));
    image.plant(0, 2, &neighbour);
    required(&image, 2, FindingKind::Misdirected);
}

#[test]
fn a_whole_version_that_the_plan_never_issues_is_unexpected_whatever_the_ledger_says() {
    let mut image = Image::log(10);
    let newer = RecordKey {
        version: 2,
        ..key(&image.cell, 0, 2)
    };
    image.plant(0, 2, &record(&newer));
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(breach.kind, FindingKind::Unexpected);
    assert_eq!(breach.expected, Fate::Required);
    // Issued or not, acknowledged or not, complete or not.
    let breach = only(image.judged(&steady(10), 92).into_iter().take(1).collect());
    assert_eq!(breach.kind, FindingKind::Unexpected);
    let ledger = Lines::default().issued(op(0, 2), 1).ledger();
    let breach = only(image.judged(&ledger, ALL));
    assert_eq!(
        (breach.kind, breach.expected),
        (FindingKind::Unexpected, Fate::Forbidden)
    );
    assert_eq!(breach.acknowledged_at, None);
}

#[test]
fn a_newer_version_that_was_issued_replaces_the_older_one() {
    let mut image = Image::log(1);
    let newer = RecordKey {
        version: 2,
        ..key(&image.cell, 0, 0)
    };
    image.plant(0, 0, &record(&newer));
    let mut second = op(0, 0);
    second.version = 2;
    let ledger = Lines::default()
        .issued(op(0, 0), 1)
        .acknowledged(op(0, 0), 5)
        .issued(second, 6)
        .complete(ALL)
        .ledger();
    assert_eq!(image.judged(&ledger, 6), Vec::new());
    assert_eq!(
        kinds(&image.judged(&ledger, 5)),
        [(FindingKind::Unexpected, Some(0))]
    );
}

#[test]
fn a_whole_record_that_was_not_issued_by_the_cut_is_unexpected() {
    let image = Image::log(10);
    let breach = only(image.judged(&steady(10), 90));
    assert_eq!(breach.kind, FindingKind::Unexpected);
    assert_eq!(breach.expected, Fate::Forbidden);
    assert_eq!(breach.record.map(|r| r.sequence.0), Some(9));
    assert_eq!(breach.acknowledged_at, None);
    assert_eq!(image.judged(&steady(10), 91), Vec::new());
    // Never in the ledger at all, and complete.
    assert_eq!(
        kinds(&image.judged(&steady(9), 90)),
        [(FindingKind::Unexpected, Some(9))]
    );
}

#[test]
fn a_ledger_that_is_not_complete_to_the_cut_makes_nothing_unexpected() {
    let image = Image::log(10);
    assert_eq!(image.judged(&steady(9), 91), Vec::new());
    let ledger = Lines::default().issued(op(0, 0), 1).ledger();
    assert_eq!(image.judged(&ledger, 0), Vec::new());
}

#[test]
fn a_part_of_a_record_that_was_not_issued_is_no_breach() {
    let mut image = Image::log(10);
    let mut bytes = record(&key(&image.cell, 0, 9));
    bytes[4096..].fill(0);
    image.plant(0, 9, &bytes);
    assert_eq!(image.judged(&steady(9), 90), Vec::new());
}

#[test]
fn an_acknowledged_record_behind_a_read_error_is_unreadable_and_detected() {
    let mut image = Image::log(10);
    let mut before = image.bytes(0).clone();
    before.truncate(9 * RECORD_BYTES as usize + 4096);
    image.observation.objects[0].content = ObservedContent::Unreadable { before, errno: 5 };
    image.withhold(0, 9);
    required(&image, 9, FindingKind::Unreadable);
    assert_eq!(
        only(image.judged(&steady(10), ALL)).detection,
        Detection::Detected
    );
}

#[test]
fn records_read_whole_before_a_read_error_are_judged_by_their_bytes() {
    let mut image = Image::log(10);
    image.lose(0, 3);
    let mut before = image.bytes(0).clone();
    before.truncate(9 * RECORD_BYTES as usize);
    image.observation.objects[0].content = ObservedContent::Unreadable { before, errno: 117 };
    image.withhold(0, 9);
    assert_eq!(
        kinds(&image.judged(&steady(10), ALL)),
        [
            (FindingKind::Lost, Some(3)),
            (FindingKind::Unreadable, Some(9))
        ]
    );
}

#[test]
fn a_failed_operation_is_permitted_for_ever_and_forbidden_before_it_is_issued() {
    let mut image = Image::log(2);
    let ledger = Lines::default()
        .issued(op(0, 0), 1)
        .failed(op(0, 0), 5)
        .issued(op(0, 1), 6)
        .acknowledged(op(0, 1), 9)
        .complete(ALL)
        .ledger();
    assert_eq!(image.judged(&ledger, ALL), Vec::new());
    assert_eq!(
        kinds(&image.judged(&ledger, 0)),
        [
            (FindingKind::Unexpected, Some(0)),
            (FindingKind::Unexpected, Some(1))
        ]
    );
    image.lose(0, 0);
    assert_eq!(image.judged(&ledger, ALL), Vec::new());
    image.lose(0, 1);
    assert_eq!(
        kinds(&image.judged(&ledger, ALL)),
        [(FindingKind::Lost, Some(1))]
    );
}

#[test]
fn on_a_raw_stack_a_breach_names_the_device_and_its_sector() {
    let mut image = Image::whole(Filesystem::None, 2, 3);
    image.lose(1, 1);
    let ledger = Lines::default()
        .issued(op(1, 0), 1)
        .acknowledged(op(1, 0), 2)
        .issued(op(1, 1), 3)
        .acknowledged(op(1, 1), 4)
        .ledger();
    let breach = only(image.judged(&ledger, 9));
    assert_eq!(breach.object, "device");
    assert_eq!(breach.offset, Some(ByteOffset(4 * u64::from(RECORD_BYTES))));
    assert_eq!(breach.sector, Some(Sector(64)));
}

#[test]
fn streams_are_judged_each_by_its_own_file_in_whatever_order_the_plan_holds_them() {
    let mut image = Image::whole(Filesystem::Ext4, 3, 2);
    image.lose(2, 0);
    image.cell.workload.writers.reverse();
    image.observation.objects.swap(0, 1);
    let mut lines = Lines::default();
    for stream in 0..3 {
        lines = lines
            .issued(op(stream, 0), 1)
            .acknowledged(op(stream, 0), 2);
    }
    let breach = only(image.judged(&lines.ledger(), 9));
    assert_eq!(breach.object, "log-2");
    assert_eq!(breach.record.map(|r| r.stream.0), Some(2));
}

#[test]
fn an_object_that_no_writer_has_is_not_judged() {
    let mut image = Image::log(2);
    image.observation.objects.push(ObservedObject {
        name: "lost+found".into(),
        content: ObservedContent::Missing,
    });
    assert_eq!(image.judged(&steady(2), ALL), Vec::new());
}

#[test]
fn an_operation_that_the_plan_does_not_issue_is_taken_for_no_other() {
    let acknowledged = |id| {
        Lines::default()
            .issued(id, 1)
            .acknowledged(id, 2)
            .complete(ALL)
            .ledger()
    };
    let mut second = op(2, 0);
    second.version = 2;
    let mut image = Image::whole(Filesystem::Ext4, 3, 1);
    image.lose(0, 0);
    image.lose(2, 0);
    image.cell.workload.writers.remove(1);
    image.withhold(1, 0);
    for id in [op(1, 0), op(0, 5), second] {
        assert_eq!(image.judged(&acknowledged(id), ALL), Vec::new(), "{id:?}");
    }
    // Nor does it hide one that the plan does issue.
    let mut image = Image::whole(Filesystem::Ext4, 3, 1);
    image.cell.workload.writers.remove(1);
    image.withhold(1, 0);
    let mut lines = Lines::default();
    for stream in 0..3 {
        lines = lines.issued(op(stream, 0), 1);
    }
    assert_eq!(image.judged(&lines.complete(ALL).ledger(), ALL), Vec::new());
}

#[test]
fn a_ledger_of_another_plan_is_void() {
    let cell = cell(Filesystem::Ext4, 1, 3);
    assert_eq!(check_ledger(&cell, &steady(3)), Ok(()));
    assert!(check_ledger(&cell, &steady(4)).is_err());
    assert!(check_ledger(&cell, &Lines::default().issued(op(1, 0), 1).ledger()).is_err());
    let mut second = op(0, 0);
    second.version = 2;
    let error = check_ledger(&cell, &Lines::default().issued(second, 1).ledger());
    let words = error.expect_err("not planned").to_string();
    assert!(words.contains("stream 0 sequence 0 version 2"), "{words}");
}
