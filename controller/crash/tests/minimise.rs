//! Reduction of a failing crash state.

use std::collections::BTreeSet;
use std::convert::Infallible;

use plugpull_crash::log::index::{Command, IndexHeader, Kind};
use plugpull_crash::log::reader::Recording;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::state::enumerate::{Limits, crash_states};
use plugpull_crash::state::explorer::{Covers, Explorer};
use plugpull_crash::state::minimise::minimise;
use plugpull_crash::state::{CrashState, Source};
use plugpull_model::drive::{DriveSettings, DriveSpec};
use plugpull_model::seed::Seed;

const BLOCK: u64 = 512;

fn drive() -> DriveSettings {
    let spec: DriveSpec =
        serde_json::from_str(r#"{"cache": "volatile", "logical_block_bytes": 512}"#)
            .expect("a drive");
    spec.resolve().expect("a plain drive")
}

/// Commands one after the other: (kind, first block, blocks). The data of the
/// n-th is the byte n + 1.
fn recording(commands: &[(Kind, u64, u64)]) -> Recording {
    let mut data = Vec::new();
    let mut list = Vec::new();
    for (number, (kind, block, blocks)) in commands.iter().enumerate() {
        list.push(Command {
            kind: *kind,
            offset_bytes: block * BLOCK,
            length_bytes: blocks * BLOCK,
            submitted: number as u64,
            completed: number as u64,
            data_at: data.len() as u64,
            completed_ns: 0,
            errno: 0,
        });
        let length = usize::try_from(blocks * BLOCK).expect("small");
        let byte = u8::try_from(number + 1).expect("few");
        data.resize(data.len() + length, byte);
    }
    let header = IndexHeader {
        entries: list.len() as u64,
        device_bytes: 64 * BLOCK,
        base: 0,
        max_depth: 0,
    };
    Recording::from_parts(header, list, data)
}

fn base() -> SharedMemory {
    SharedMemory::new("base", 64 * BLOCK).expect("memfd")
}

fn at_end<'a>(
    recording: &'a Recording,
    settings: &'a DriveSettings,
    base: &'a SharedMemory,
    covers: Covers,
) -> Explorer<'a> {
    let mut explorer = Explorer::reading(recording, settings, base, Seed(1), covers);
    while explorer.position() < recording.commands().len() as u64 {
        explorer.step();
    }
    explorer
}

const ALL: Limits = Limits {
    exhaustive: 1 << 16,
    sampled: 0,
};

fn holds(state: &CrashState, block: u64) -> bool {
    state
        .overrides
        .iter()
        .any(|(unit, source)| *unit == block && *source != Source::Base)
}

#[test]
fn of_many_lost_writes_the_one_that_matters_is_left() {
    let commands: Vec<(Kind, u64, u64)> = (0..12).map(|n| (Kind::Write, n * 2, 1)).collect();
    let (recording, settings, base) = (recording(&commands), drive(), base());
    let mut explorer = at_end(&recording, &settings, &base, Covers::Known);
    let states = crash_states(&mut explorer, ALL, Seed(1));
    assert_eq!(states.states.len(), 4096);
    let none = states.states.iter().find(|s| s.overrides.is_empty());
    let mut fails = |state: &CrashState| Ok::<bool, Infallible>(!holds(state, 10));
    let minimal = minimise(&mut explorer, none.expect("all lost"), 100, &mut fails)
        .expect("infallible")
        .expect("a state of this cut");
    assert_eq!(minimal.lost.len(), 1);
    assert_eq!(minimal.lost[0].command, 5);
    assert!(minimal.is_minimal);
    assert_eq!(minimal.state.overrides.len(), 11);
    // It is a state of the cut itself.
    assert!(states.states.contains(&minimal.state));
}

#[test]
fn two_writes_that_are_lost_together_are_both_named() {
    let commands: Vec<(Kind, u64, u64)> = (0..10).map(|n| (Kind::Write, n, 1)).collect();
    let (recording, settings, base) = (recording(&commands), drive(), base());
    let mut explorer = at_end(&recording, &settings, &base, Covers::Known);
    let states = crash_states(&mut explorer, ALL, Seed(1));
    let mut fails =
        |state: &CrashState| Ok::<bool, Infallible>(!holds(state, 2) && !holds(state, 7));
    for state in &states.states {
        if holds(state, 2) || holds(state, 7) {
            continue;
        }
        let minimal = minimise(&mut explorer, state, 200, &mut fails)
            .expect("infallible")
            .expect("of this cut");
        let lost: BTreeSet<usize> = minimal.lost.iter().map(|lost| lost.command).collect();
        assert_eq!(lost, BTreeSet::from([2, 7]));
    }
}

#[test]
fn of_a_block_written_often_only_the_newest_version_is_lost() {
    let commands: Vec<(Kind, u64, u64)> = (0..6).map(|_| (Kind::Write, 3, 1)).collect();
    let (recording, settings, base) = (recording(&commands), drive(), base());
    let mut explorer = at_end(&recording, &settings, &base, Covers::Known);
    let states = crash_states(&mut explorer, ALL, Seed(1));
    assert_eq!(states.states.len(), 7);
    let newest = Source::Log(5 * BLOCK);
    let mut fails =
        |state: &CrashState| Ok::<bool, Infallible>(!state.overrides.contains(&(3, newest)));
    let none = states.states.iter().find(|s| s.overrides.is_empty());
    let minimal = minimise(&mut explorer, none.expect("all lost"), 100, &mut fails)
        .expect("infallible")
        .expect("of this cut");
    assert_eq!(minimal.lost.len(), 1);
    assert_eq!(minimal.lost[0].command, 5);
}

#[test]
fn a_torn_command_loses_its_missing_blocks_only() {
    let (recording, settings, base) = (recording(&[(Kind::Write, 8, 8)]), drive(), base());
    let mut explorer = at_end(&recording, &settings, &base, Covers::Known);
    let states = crash_states(&mut explorer, ALL, Seed(1));
    assert_eq!(states.states.len(), 256);
    let mut fails =
        |state: &CrashState| Ok::<bool, Infallible>(!holds(state, 10) || !holds(state, 11));
    let none = states.states.iter().find(|s| s.overrides.is_empty());
    let minimal = minimise(&mut explorer, none.expect("all lost"), 100, &mut fails)
        .expect("infallible")
        .expect("of this cut");
    assert_eq!(minimal.lost.len(), 1);
    assert!(minimal.lost[0].units == (10..11) || minimal.lost[0].units == (11..12));
}

#[test]
fn a_cut_that_fails_with_everything_kept_has_lost_nothing() {
    let (recording, settings, base) = (recording(&[(Kind::Write, 8, 1)]), drive(), base());
    let mut explorer = at_end(&recording, &settings, &base, Covers::Known);
    let states = crash_states(&mut explorer, ALL, Seed(1));
    let mut fails = |_: &CrashState| Ok::<bool, Infallible>(true);
    for state in &states.states {
        let minimal = minimise(&mut explorer, state, 10, &mut fails)
            .expect("infallible")
            .expect("of this cut");
        assert!(minimal.lost.is_empty());
    }
}

#[test]
fn a_spent_budget_leaves_a_failing_state_that_is_not_called_minimal() {
    let commands: Vec<(Kind, u64, u64)> = (0..12).map(|n| (Kind::Write, n, 1)).collect();
    let (recording, settings, base) = (recording(&commands), drive(), base());
    let mut explorer = at_end(&recording, &settings, &base, Covers::Known);
    let states = crash_states(&mut explorer, ALL, Seed(1));
    let none = states.states.iter().find(|s| s.overrides.is_empty());
    let mut fails = |state: &CrashState| Ok::<bool, Infallible>(!holds(state, 3));
    let minimal = minimise(&mut explorer, none.expect("all lost"), 2, &mut fails)
        .expect("infallible")
        .expect("of this cut");
    assert!(!minimal.is_minimal);
    assert!(!holds(&minimal.state, 3));
}

#[test]
fn what_a_flush_may_not_have_covered_is_in_doubt_until_the_next() {
    let commands = [
        (Kind::Write, 1, 1),
        (Kind::Flush, 0, 0),
        (Kind::Write, 2, 1),
        (Kind::Flush, 0, 0),
    ];
    let (recording, settings, base) = (recording(&commands), drive(), base());
    let mut explorer = at_end(&recording, &settings, &base, Covers::InDoubt);
    let states = crash_states(&mut explorer, ALL, Seed(1));
    // The first write is covered by the second FLUSH whatever the first did.
    assert_eq!(states.possible, 2u32.into());
    let doubtful: Vec<bool> = states.states.iter().map(|s| s.doubtful).collect();
    assert_eq!(doubtful, [false, true]);
    let mut known = at_end(&recording, &settings, &base, Covers::Known);
    assert_eq!(crash_states(&mut known, ALL, Seed(1)).states.len(), 1);
}
