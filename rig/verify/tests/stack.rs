//! Breaches of the stack as a whole, and use after recovery.

mod common;

use common::*;
use plugpull_model::observation::{CheckerOutcome, ObservedContent, RecoveryOutcome};
use plugpull_model::scenario::Order;
use plugpull_model::stack::Filesystem;
use plugpull_model::verdict::{Detection, Fate, FindingKind};
use plugpull_verify::inspect;

const ALL: u64 = 100;

#[test]
fn an_image_that_does_not_mount_is_one_breach_in_the_kernels_words() {
    let mut image = Image::log(10);
    image.lose(0, 4);
    image.observation.recovery = RecoveryOutcome::MountFailed { errno: 117 };
    image.observation.messages = vec!["JBD2: Invalid checksum\nrecovering data block".into()];
    let breach = only(image.judged(&steady(10), 0));
    assert_eq!(breach.kind, FindingKind::Unmountable);
    assert_eq!(breach.object, "file system");
    assert_eq!(breach.record, None);
    assert_eq!(breach.expected, Fate::Required);
    assert_eq!(breach.detection, Detection::Detected);
    assert!(breach.observed.contains("117"), "{}", breach.observed);
    assert!(
        breach
            .observed
            .contains("Invalid checksum recovering data block"),
        "{}",
        breach.observed
    );
    assert!(!inspect(&image.cell, RUN, &image.observation).is_recovered());
    // Mounted, the same messages are no breach.
    let mut image = Image::log(10);
    image.observation.messages = vec!["JBD2: Invalid checksum recovering data block".into()];
    assert_eq!(image.judged(&steady(10), ALL), Vec::new());
    assert!(inspect(&image.cell, RUN, &image.observation).is_recovered());
}

#[test]
fn a_recovery_step_that_gives_up_is_unmountable_in_bounded_words() {
    let mut image = Image::log(10);
    image.observation.recovery = RecoveryOutcome::StepFailed {
        step: "e2fsck -p".into(),
        code: Some(4),
        output: "UNEXPECTED INCONSISTENCY ".repeat(1000),
    };
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(breach.kind, FindingKind::Unmountable);
    assert!(
        breach
            .observed
            .starts_with("`e2fsck -p` failed: exit code 4: UNEXPECTED")
    );
    assert!(breach.observed.len() <= 800);
}

#[test]
fn a_recovery_that_does_not_end_is_a_hang() {
    let mut image = Image::log(10);
    image.lose(0, 4);
    image.observation.recovery = RecoveryOutcome::Hung;
    assert_eq!(only(image.judged(&steady(10), ALL)).kind, FindingKind::Hang);
}

#[test]
fn a_kernel_fault_is_reported_beside_the_records_and_makes_them_detected() {
    let mut image = Image::log(10);
    image.lose(0, 4);
    image.observation.kernel_faults = vec!["WARNING: fs/ext4/inode.c".into()];
    let breaches = image.judged(&steady(10), ALL);
    assert_eq!(
        kinds(&breaches),
        [
            (FindingKind::KernelFault, None),
            (FindingKind::Lost, Some(4))
        ]
    );
    assert!(breaches.iter().all(|b| b.detection == Detection::Detected));
    image.observation.recovery = RecoveryOutcome::MountFailed { errno: 5 };
    assert_eq!(
        kinds(&image.judged(&steady(10), ALL)),
        [
            (FindingKind::KernelFault, None),
            (FindingKind::Unmountable, None)
        ]
    );
}

#[test]
fn a_record_lost_only_by_use_is_after_recovery() {
    let mut image = Image::log(10);
    let used = image.used();
    bytes_of(&mut used.objects[0])[4 * 8192..5 * 8192].fill(0);
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(
        (breach.kind, breach.after_recovery),
        (FindingKind::Lost, true)
    );
    assert!(breach.newer_survives);
    // What is lost by use was not lost inside the window.
    let breach = only(image.judged_under(&window(10_000, Order::None), &steady(10), ALL));
    assert!(!breach.contractual);
    // Before the record was acknowledged, nothing was lost.
    let nine = Lines::default().issued(op(0, 4), 1).ledger();
    assert_eq!(image.judged(&nine, ALL), Vec::new());
}

#[test]
fn a_record_lost_before_and_after_use_is_reported_once() {
    let mut image = Image::log(10);
    image.lose(0, 4);
    image.used();
    let breach = only(image.judged(&steady(10), ALL));
    assert!(!breach.after_recovery);
    // Nor when it is lost in another way then.
    bytes_of(&mut image.used().objects[0])[4 * 8192..5 * 8192].fill(0xaa);
    assert!(!only(image.judged(&steady(10), ALL)).after_recovery);
}

#[test]
fn a_record_that_recovery_hid_and_use_destroyed_is_reported_once() {
    let mut image = Image::log(10);
    image.withhold(0, 9);
    bytes_of(&mut image.used().objects[0]).truncate(9 * 8192);
    assert!(!only(image.judged(&steady(10), ALL)).after_recovery);
}

#[test]
fn a_file_gone_by_use_is_lost_after_recovery() {
    let mut image = Image::log(10);
    image.bytes(0).clear();
    image.observation.recovered.records.clear();
    image.used().objects[0].content = ObservedContent::Missing;
    let breach = only(image.judged(&Lines::default().ledger(), 0));
    assert_eq!((breach.kind, breach.record), (FindingKind::Lost, None));
    assert!(breach.after_recovery);
}

fn checker(damage: bool) -> Option<CheckerOutcome> {
    Some(CheckerOutcome {
        command: "e2fsck -fn".into(),
        code: Some(if damage { 4 } else { 0 }),
        damage,
        output: "Free blocks count wrong".into(),
    })
}

#[test]
fn damage_found_by_the_checker_is_metadata() {
    let mut image = Image::log(10);
    image.used().checker = checker(true);
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(
        (breach.kind, breach.after_recovery),
        (FindingKind::Metadata, true)
    );
    assert!(breach.observed.contains("Free blocks count wrong"));
    image.used().checker = checker(false);
    assert_eq!(image.judged(&steady(10), ALL), Vec::new());
}

#[test]
fn what_the_checker_or_the_use_says_detects_the_losses_after_use_and_not_those_before() {
    let mut image = Image::log(10);
    image.lose(0, 3);
    let used = image.used();
    bytes_of(&mut used.objects[0])[4 * 8192..5 * 8192].fill(0);
    let detections = |image: &Image| -> Vec<(bool, Detection)> {
        let breaches = image.judged(&steady(10), ALL);
        let records = breaches.iter().filter(|b| b.record.is_some());
        records.map(|b| (b.after_recovery, b.detection)).collect()
    };
    let silent = [(false, Detection::Silent), (true, Detection::Silent)];
    assert_eq!(detections(&image), silent);
    let said = [(false, Detection::Silent), (true, Detection::Detected)];
    let used = image.observation.used.as_mut().expect("used");
    used.failed = Some("create: Input/output error".into());
    assert_eq!(detections(&image), said);
    let used = image.observation.used.as_mut().expect("used");
    used.failed = None;
    used.checker = checker(true);
    assert_eq!(detections(&image), said);
}

#[test]
fn a_use_after_which_nothing_can_be_read_is_unmountable_and_loses_no_record() {
    let mut image = Image::log(10);
    let used = image.used();
    used.objects.clear();
    used.failed = Some("mount: Structure needs cleaning".into());
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(
        (breach.kind, breach.after_recovery),
        (FindingKind::Unmountable, true)
    );
}

#[test]
fn a_use_that_fails_while_the_objects_can_be_read_is_metadata() {
    let mut image = Image::log(10);
    image.used().failed = Some("unlink fill-3: Input/output error".into());
    let breach = only(image.judged(&steady(10), ALL));
    assert_eq!(
        (breach.kind, breach.after_recovery),
        (FindingKind::Metadata, true)
    );
}

#[test]
fn a_second_look_that_lists_no_object_and_did_not_fail_has_lost_them() {
    let mut image = Image::log(1);
    image.used().objects.clear();
    let breach = only(image.judged(&steady(1), ALL));
    assert_eq!(
        (breach.kind, breach.after_recovery),
        (FindingKind::Lost, true)
    );
}

#[test]
fn on_a_raw_stack_the_stack_is_the_device() {
    let mut image = Image::whole(Filesystem::None, 1, 1);
    image.observation.recovery = RecoveryOutcome::Hung;
    assert_eq!(only(image.judged(&steady(1), ALL)).object, "device");
}
