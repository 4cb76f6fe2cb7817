//! Each planted fault of the drive, through the whole product: the right kind of
//! finding with it, none without it. Raw stacks: no root.

use std::collections::BTreeMap;

use assert_cmd::Command;
use serde_json::Value;

/// Runs one raw cell and gives back its verdict, findings and reason.
fn run(acknowledge: &str, drive: &str, extra: &str) -> Cell {
    let folder = tempfile::tempdir().expect("tempdir");
    let scenario = folder.path().join("scenario.toml");
    let text = format!(
        r#"
schema = 1
name = "planted"
[workload.append-log]
records_per_writer = 5
[stacks.raw]
filesystem = "none"
device_bytes = "1 MiB"
acknowledge = "{acknowledge}"
[drives.drive]
{drive}
[matrix]
stacks = ["raw"]
drives = ["drive"]
{extra}
"#
    );
    std::fs::write(&scenario, text).expect("scenario");
    let output = Command::new(env!("CARGO_BIN_EXE_plugpull"))
        .arg("run")
        .arg(&scenario)
        .arg("--out")
        .arg(folder.path().join("run"))
        .arg("--json")
        .output()
        .expect("plugpull runs");
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let cell = &report["cells"][0];
    Cell {
        exit: output.status.code(),
        verdict: cell["verdict"].as_str().expect("verdict").to_owned(),
        reason: cell["reason"].as_str().unwrap_or_default().to_owned(),
        acknowledged: cell["records"]["acknowledged"].as_u64().expect("number"),
        cause: cell["first_finding"]["cause"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        findings: cell["findings"]
            .as_object()
            .expect("findings")
            .iter()
            .map(|(kind, count)| (kind.clone(), count.as_u64().expect("count")))
            .collect(),
    }
}

#[derive(Debug)]
struct Cell {
    exit: Option<i32>,
    verdict: String,
    reason: String,
    acknowledged: u64,
    cause: String,
    findings: BTreeMap<String, u64>,
}

impl Cell {
    fn kinds(&self) -> Vec<&str> {
        self.findings.keys().map(String::as_str).collect()
    }
}

const SMALL: &str = "[budget]\nsampled_states_per_cut = 200";

#[test]
fn an_honest_volatile_drive_with_flushes_gives_no_finding() {
    let cell = run("flush", "cache = \"volatile\"", "");
    assert_eq!(
        (cell.verdict.as_str(), cell.exit),
        ("upheld", Some(0)),
        "{cell:?}"
    );
}

#[test]
fn a_drive_that_ignores_flush_loses_and_is_named_as_the_cause() {
    let cell = run("flush", "cache = \"volatile\"\nflush = \"ignored\"", "");
    assert_eq!(cell.kinds(), ["lost"], "{cell:?}");
    assert_eq!((cell.cause.as_str(), cell.exit), ("flush-ignored", Some(1)));
}

#[test]
fn a_drive_that_ignores_fua_loses_and_is_named_as_the_cause() {
    let cell = run("fua", "cache = \"volatile\"\nfua = \"ignored\"", "");
    assert_eq!(cell.kinds(), ["lost"], "{cell:?}");
    assert_eq!(cell.cause, "fua-ignored");
}

#[test]
fn ignoring_fua_is_inconclusive_where_no_fua_was_seen() {
    let cell = run("flush", "cache = \"volatile\"\nfua = \"ignored\"", "");
    assert_eq!(
        (cell.verdict.as_str(), cell.exit),
        ("inconclusive", Some(3)),
        "{cell:?}"
    );
    assert!(cell.reason.contains("FUA"), "{}", cell.reason);
}

#[test]
fn acknowledging_without_a_flush_is_named_as_the_cause() {
    let cell = run("none", "cache = \"volatile\"", "");
    assert_eq!(cell.cause, "no-flush-before-acknowledgement", "{cell:?}");
}

#[test]
fn shorn_writes_are_found_inside_a_logical_block() {
    let cell = run(
        "flush",
        "cache = \"volatile\"\nflush = \"ignored\"\nfaults = [\"shorn\"]",
        SMALL,
    );
    assert!(cell.findings.contains_key("shorn"), "{cell:?}");
    assert!(!cell.findings.contains_key("torn"), "{cell:?}");
}

#[test]
fn torn_writes_are_found_at_logical_blocks_and_not_with_an_atomic_unit_that_covers_them() {
    let lying = "cache = \"volatile\"\nflush = \"ignored\"\nlogical_block_bytes = 512";
    let cell = run("flush", lying, SMALL);
    assert!(cell.findings.contains_key("torn"), "{cell:?}");
    let cell = run(
        "flush",
        &format!("{lying}\natomic_write_bytes = 4096"),
        SMALL,
    );
    assert_eq!(cell.kinds(), ["lost"], "{cell:?}");
}

#[test]
fn a_flipped_bit_is_corrupt() {
    let cell = run(
        "flush",
        "cache = \"volatile\"\nfaults = [\"bit-corruption\"]",
        "",
    );
    assert!(cell.findings.contains_key("corrupt"), "{cell:?}");
    assert_eq!(cell.cause, "planted-fault");
}

#[test]
fn a_write_that_also_lands_elsewhere_is_misdirected() {
    let cell = run(
        "flush",
        "cache = \"volatile\"\nfaults = [\"misdirected\"]",
        "",
    );
    assert!(cell.findings.contains_key("misdirected"), "{cell:?}");
}

#[test]
fn one_lost_write_is_lost() {
    let cell = run(
        "flush",
        "cache = \"volatile\"\nfaults = [\"one-lost-write\"]",
        "",
    );
    assert!(cell.findings.contains_key("lost"), "{cell:?}");
}

#[test]
fn writes_that_persist_out_of_order_are_unserializable_only_under_order_prefix() {
    let drive = "cache = \"volatile\"\nfaults = [\"unserializable\"]";
    let cell = run("flush", drive, "[contract]\norder = \"prefix\"");
    assert!(cell.findings.contains_key("unserializable"), "{cell:?}");
    let cell = run("flush", drive, "");
    assert_eq!(cell.kinds(), ["lost"], "{cell:?}");
}

#[test]
fn a_write_that_fails_with_eio_acknowledges_nothing() {
    let window = "faults = [{ write-eio = { from_event = 8, to_event = 1000 } }]";
    let cell = run("flush", &format!("cache = \"volatile\"\n{window}"), "");
    assert_eq!(
        (cell.verdict.as_str(), cell.acknowledged),
        ("upheld", 2),
        "{cell:?}"
    );
}

#[test]
fn a_window_of_errors_that_nothing_hits_is_inconclusive() {
    let window = "faults = [{ dead-device = { from_event = 100000 } }]";
    let cell = run("flush", &format!("cache = \"volatile\"\n{window}"), "");
    assert_eq!(cell.verdict, "inconclusive", "{cell:?}");
}

#[test]
fn a_dead_device_acknowledges_nothing_from_then_on() {
    let window = "faults = [{ dead-device = { from_event = 12 } }]";
    let cell = run("flush", &format!("cache = \"volatile\"\n{window}"), "");
    assert_eq!(
        (cell.verdict.as_str(), cell.acknowledged),
        ("upheld", 3),
        "{cell:?}"
    );
}

#[test]
fn loss_inside_the_window_is_contractual_and_not_a_failure() {
    let drive = "cache = \"volatile\"\nflush = \"ignored\"";
    let cell = run("flush", drive, "[contract]\nloss_window_ms = 60000");
    assert_eq!(
        (cell.verdict.as_str(), cell.findings.len()),
        ("upheld", 0),
        "{cell:?}"
    );
}
