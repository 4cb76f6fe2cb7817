//! An honest stack yields no finding over any number of crash images; the same
//! check finds what a lying drive loses.

mod common;

use std::path::Path;

use common::{
    EXT4, LYING, PROTECTED, Scenario, VOLATILE, VOLATILE_512, command, ext4, folder, start,
};
use plugpull::capability::require_or_skip;
use serde_json::Value;

const ACKNOWLEDGE: [&str; 4] = ["fsync", "fdatasync", "o-sync", "o-dsync"];
const HONEST: [(&str, &str); 3] = [
    ("volatile", VOLATILE),
    ("protected", PROTECTED),
    ("volatile-512", VOLATILE_512),
];
/// Acceptance: at least this many distinct crash images of honest stacks.
const MANY: u64 = 20_000;
/// The same for the test of every day.
const FEW: u64 = 1_000;

/// How the log is written.
#[derive(Clone, Copy, Debug)]
struct Way {
    file: &'static str,
    writers: u32,
    direct: bool,
}

impl Way {
    fn all() -> Vec<Way> {
        let mut all = Vec::new();
        for file in ["growing", "preallocated"] {
            for writers in [1, 3] {
                for direct in [false, true] {
                    all.push(Way {
                        file,
                        writers,
                        direct,
                    });
                }
            }
        }
        all
    }

    /// The barrier stack with every acknowledging call, on these drives.
    fn scenario(self, records: u32, drives: &[(&str, &str)], images_per_cell: u32) -> Scenario {
        let Way {
            file,
            writers,
            direct,
        } = self;
        let mut scenario = Scenario::honest(
            &format!(
                "records_per_writer = {records}\nwriters = {writers}\nfile = \"{file}\"\n\
                 direct = {direct}"
            ),
            drives,
            &format!("images_per_cell = {images_per_cell}"),
        );
        scenario.stacks = ACKNOWLEDGE
            .iter()
            .map(|call| {
                let keys = format!("{}acknowledge = \"{call}\"\n", ext4("barrier=1"));
                (format!("ext4-{call}"), keys)
            })
            .collect();
        scenario
    }
}

/// Runs a scenario and gives its report.
fn report(scenario: &Scenario, folder: &Path, code: i32, context: &str) -> Value {
    let path = scenario.write(folder);
    let ended = start(&mut command(&[
        "run".as_ref(),
        path.as_os_str(),
        "--json".as_ref(),
        "--out".as_ref(),
        folder.join("run").as_os_str(),
    ]))
    .wait(std::time::Duration::from_secs(1800));
    ended.is_calm();
    ended.leaves_nothing();
    assert_eq!(
        ended.code,
        Some(code),
        "{context}: {}{}",
        ended.stdout,
        ended.stderr
    );
    serde_json::from_str(&ended.stdout).expect("a report")
}

/// Runs the honest cells and returns how many distinct images were checked.
fn checked_without_a_finding(ways: &[Way], records: u32, images_per_cell: u32) -> u64 {
    let mut total = 0;
    for way in ways {
        let folder = folder();
        let scenario = way.scenario(records, &HONEST, images_per_cell);
        let context = format!("{way:?}");
        let report = report(&scenario, folder.path(), 0, &context);
        let cells = report["cells"].as_array().expect("cells");
        assert_eq!(cells.len(), ACKNOWLEDGE.len() * HONEST.len());
        let mut sum = 0;
        for cell in cells {
            assert_eq!(cell["verdict"], "upheld", "{context}: {cell}");
            assert_eq!(cell["findings"], serde_json::json!({}), "{context}: {cell}");
            sum += cell["crash_states"]["checked"].as_u64().expect("a number");
        }
        println!("{context}: {sum} images, no finding");
        total += sum;
    }
    println!("{total} crash images in all, no finding");
    total
}

#[test]
fn an_honest_stack_has_no_finding() {
    if require_or_skip(EXT4, "an_honest_stack_has_no_finding").is_err() {
        return;
    }
    let ways = [
        Way {
            file: "growing",
            writers: 3,
            direct: false,
        },
        Way {
            file: "preallocated",
            writers: 1,
            direct: true,
        },
    ];
    let total = checked_without_a_finding(&ways, 6, 130);
    assert!(total >= FEW, "{total}");
}

#[test]
#[ignore = "long: at least 20,000 crash images"]
fn an_honest_stack_has_no_finding_over_20_000_crash_images() {
    if require_or_skip(
        EXT4,
        "an_honest_stack_has_no_finding_over_20_000_crash_images",
    )
    .is_err()
    {
        return;
    }
    let total = checked_without_a_finding(&Way::all(), 10, 400);
    assert!(total >= MANY, "{total}");
}

/// The counterpart: what finds nothing on an honest drive is not blind.
fn a_lying_drive_is_found_out(ways: &[Way]) {
    for way in ways {
        let folder = folder();
        let scenario = way.scenario(4, &[("lying", LYING)], 60);
        let context = format!("{way:?} on a lying drive");
        let report = report(&scenario, folder.path(), 1, &context);
        for cell in report["cells"].as_array().expect("cells") {
            assert_eq!(cell["verdict"], "violated", "{context}: {cell}");
            let lost = cell["findings"]["lost"].as_u64().unwrap_or(0);
            assert!(lost > 0, "{context}: {cell}");
            assert_eq!(cell["lost_on_a_mounted_image"], true, "{context}: {cell}");
        }
    }
}

#[test]
fn the_same_check_finds_what_a_lying_drive_loses() {
    if require_or_skip(EXT4, "the_same_check_finds_what_a_lying_drive_loses").is_err() {
        return;
    }
    a_lying_drive_is_found_out(&[Way {
        file: "growing",
        writers: 3,
        direct: false,
    }]);
}

#[test]
#[ignore = "long: every way to write a log"]
fn the_same_check_finds_what_a_lying_drive_loses_in_every_way() {
    if require_or_skip(
        EXT4,
        "the_same_check_finds_what_a_lying_drive_loses_in_every_way",
    )
    .is_err()
    {
        return;
    }
    a_lying_drive_is_found_out(&Way::all());
}
