//! SIGKILL of any process at any moment: the next run works, nothing is left,
//! and an honest stack is never called unsafe because something was killed.
//!
//! Only processes that descend from a run that the test itself has started are
//! killed, by their pid.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{
    EXT4, Ended, Folder, Moments, PROTECTED, Running, Scenario, VOLATILE, cell, children_of,
    command, count, drives_of, events, folder, json, nothing_runs, plugpull, registry_file, send,
    start,
};
use nix::sys::signal::Signal;
use plugpull::capability::require_or_skip;
use plugpull_crash::kernel::loopdev;

/// Moments of each kind of process in the normal test, and in the long one.
const FEW: u32 = 4;
const MANY: u32 = 20;
/// A killed run ends by itself within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// A moment after the end of a process is chosen anew this many times.
const MAX_MISSES: u32 = 5;

/// Two honest ext4 cells: one run takes a second or two.
fn scenario() -> Scenario {
    Scenario::honest(
        "records_per_writer = 10\npause_us = 2000",
        &[("volatile", VOLATILE), ("protected", PROTECTED)],
        "images_per_cell = 70\nsampled_states_per_cut = 8\nuse_every = 24",
    )
}

const CELLS: [&str; 2] = ["ext4-barrier@volatile", "ext4-barrier@protected"];

/// A process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Runner,
    RecordedDrive,
    ImageServer,
}

struct Rig {
    folder: Folder,
    scenario: PathBuf,
    next: u32,
}

impl Rig {
    fn new() -> Rig {
        let folder = folder();
        let scenario = scenario().write(folder.path());
        Rig {
            folder,
            scenario,
            next: 0,
        }
    }

    fn start(&mut self) -> (PathBuf, Running) {
        self.next += 1;
        let out = self.folder.path().join(format!("run-{}", self.next));
        let running = start(&mut command(&[
            "run".as_ref(),
            self.scenario.as_os_str(),
            "--jobs".as_ref(),
            "2".as_ref(),
            "--out".as_ref(),
            out.as_os_str(),
        ]));
        (out, running)
    }

    /// A run that nobody disturbs, with the right verdicts.
    fn whole_run(&mut self, context: &str) -> Ended {
        let (out, running) = self.start();
        let ended = running.wait(ENDS_WITHIN);
        assert_eq!(
            ended.code,
            Some(0),
            "{context}: {}{}",
            ended.stdout,
            ended.stderr
        );
        ended.leaves_nothing();
        let report = json(&out.join("report.json"));
        for id in CELLS {
            let cell = cell(&report, id);
            assert_eq!(cell["verdict"], "upheld", "{context}: {cell}");
            let checked = cell["crash_states"]["checked"].as_u64();
            assert!(checked > Some(20), "{context}: {cell}");
        }
        ended
    }
}

/// What the run was doing: its last event, its children, its loop devices and
/// what is mounted on them.
fn phase(runner: u32, out: &Path) -> String {
    let events = events(out);
    let last = events.last().map_or_else(
        || "nothing".to_owned(),
        |last| {
            let key = last.as_object().and_then(|object| object.keys().next());
            key.cloned()
                .or_else(|| last.as_str().map(str::to_owned))
                .unwrap_or_default()
        },
    );
    let (mut recorded, mut servers, mut tools) = (0, 0, Vec::new());
    for child in children_of(runner) {
        if !child.is_drive() {
            let name = child.arguments.first().cloned().unwrap_or_default();
            tools.push(name.rsplit('/').next().unwrap_or_default().to_owned());
        } else if child.records() {
            recorded += 1;
        } else {
            servers += 1;
        }
    }
    let devices = loopdev::named(&format!("plugpull-{runner}"));
    let mounted = devices
        .iter()
        .filter_map(|device| device.file_name())
        .filter(|name| Path::new("/proc/fs/ext4").join(name).exists())
        .count();
    let what = match last.as_str() {
        "cell-started" if mounted > 0 => "recording: mounted",
        "cell-started" if tools.iter().any(|tool| tool.starts_with("mkfs")) => "recording: mkfs",
        "cell-started" if !devices.is_empty() => "recording: attached",
        "cell-started" => "recording: not attached",
        "recorded" | "found" if tools.iter().any(|tool| tool == "e2fsck") => "judging: e2fsck",
        "recorded" | "found" if mounted > 0 => "judging: mounted",
        "recorded" | "found" if !devices.is_empty() => "judging: attached",
        "recorded" | "found" => "judging: not attached",
        "cell-finished" => "between cells",
        "run-finished" => "reporting",
        _ => "starting",
    };
    format!(
        "{what} (cell {}, after {last}; {recorded} recorded drives, {servers} image servers, \
         {} loop devices, {mounted} mounted)",
        count(&events, "cell-started"),
        devices.len(),
    )
}

/// When each kind of process lives in an undisturbed run: from its first
/// sight, how long.
struct Lives {
    runner: Duration,
    recorded_drive: Duration,
    image_server: Duration,
}

fn lives(rig: &mut Rig) -> Lives {
    let (_, mut running) = rig.start();
    let mut seen: Vec<(u32, bool, Instant, Instant)> = Vec::new();
    while !running.has_ended() {
        for drive in drives_of(running.pid()) {
            let now = Instant::now();
            match seen.iter_mut().find(|(pid, ..)| *pid == drive.pid) {
                Some((_, records, _, last)) => {
                    *records |= drive.records();
                    *last = now;
                }
                None => seen.push((drive.pid, drive.records(), now, now)),
            }
        }
    }
    let runner = running.elapsed();
    running.wait(ENDS_WITHIN);
    let longest = |wanted: bool| {
        seen.iter()
            .filter(|(_, records, ..)| *records == wanted)
            .map(|(_, _, first, last)| last.duration_since(*first))
            .max()
            .expect("such a process was seen")
    };
    Lives {
        runner,
        recorded_drive: longest(true),
        image_server: longest(false),
    }
}

/// Starts a run and kills a process of it `after` its birth. `None` when the
/// process had ended by then.
fn kill_once(rig: &mut Rig, victim: Victim, after: Duration, which: u64) -> Option<Killed> {
    let (out, mut running) = rig.start();
    let runner = running.pid();
    if victim == Victim::Runner {
        sleep_until(Instant::now() + after);
        if running.has_ended() {
            running.wait(ENDS_WITHIN);
            return None;
        }
        let phase = phase(runner, &out);
        running.signal(Signal::SIGKILL);
        return Some(Killed {
            out,
            phase,
            ended: running.wait(ENDS_WITHIN),
        });
    }
    // Of the run's recorded drives (or image servers) the first or a later one.
    let mut born: Vec<u32> = Vec::new();
    let wanted = usize::try_from(which % 2).expect("0 or 1");
    let target = loop {
        if running.has_ended() {
            running.wait(ENDS_WITHIN);
            return None;
        }
        // A new process does not show yet what it is: the runner starts the
        // recorded drive before it tells of the recording, servers after.
        let events = events(&out);
        let recording = count(&events, "recorded") < count(&events, "cell-started");
        if recording == (victim == Victim::RecordedDrive) {
            for drive in drives_of(runner) {
                if !born.contains(&drive.pid) {
                    born.push(drive.pid);
                }
            }
        }
        if let Some(pid) = born.get(wanted) {
            break *pid;
        }
    };
    sleep_until(Instant::now() + after);
    let drives = drives_of(runner);
    if !drives.iter().any(|drive| drive.pid == target) {
        running.wait(ENDS_WITHIN);
        return None;
    }
    let phase = phase(runner, &out);
    send(target, Signal::SIGKILL);
    Some(Killed {
        out,
        phase,
        ended: running.wait(ENDS_WITHIN),
    })
}

struct Killed {
    out: PathBuf,
    phase: String,
    ended: Ended,
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// What must hold after a kill.
fn aftermath(rig: &mut Rig, victim: Victim, killed: &Killed, context: &str) {
    let ended = &killed.ended;
    let events = events(&killed.out);
    assert_eq!(count(&events, "found"), 0, "{context}: a false finding");
    if victim == Victim::Runner {
        assert_eq!(ended.code, None, "{context}: it was killed");
        nothing_runs(&ended.mark, ended.pid);
    } else {
        ended.is_calm();
        assert!(
            matches!(ended.code, Some(0 | 3)),
            "{context}: upheld or inconclusive, not {:?}: {}{}",
            ended.code,
            ended.stdout,
            ended.stderr
        );
        ended.leaves_nothing();
        let report = json(&killed.out.join("report.json"));
        for id in CELLS {
            let cell = cell(&report, id);
            assert_ne!(cell["verdict"], "violated", "{context}: {cell}");
            assert!(
                cell["verdict"] != "inconclusive" || !cell["reason"].is_null(),
                "{context}: why: {cell}"
            );
        }
    }
    rig.whole_run(context);
    let registry = registry_file(ended.pid);
    assert!(!registry.exists(), "{context}: the next run has cleaned");
    let cleaned = plugpull(&["clean"]);
    assert_eq!(
        cleaned.code,
        Some(0),
        "{context}: {}{}",
        cleaned.stdout,
        cleaned.stderr
    );
    if victim == Victim::Runner && count(&events, "run-started") > 0 {
        let resumed = plugpull(&["run".as_ref(), "--resume".as_ref(), killed.out.as_os_str()]);
        assert_eq!(
            resumed.code,
            Some(0),
            "{context}: resumed: {}{}",
            resumed.stdout,
            resumed.stderr
        );
        resumed.leaves_nothing();
    }
}

fn kill_at_moments(victim: Victim, moments: u32, seed: u64) {
    // One after the other: a moment is a part of a life that was measured.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::new();
    let mut random = Moments::new(seed);
    let lives = lives(&mut rig);
    let mut life = match victim {
        Victim::Runner => lives.runner,
        Victim::RecordedDrive => lives.recorded_drive,
        Victim::ImageServer => lives.image_server,
    };
    println!("{victim:?} lives {life:?} in an undisturbed run");
    let mut hits = 0;
    for index in 0..moments {
        for _ in 0..MAX_MISSES {
            let after = random.within(life, index, moments);
            let Some(killed) = kill_once(&mut rig, victim, after, random.next()) else {
                println!("{victim:?} had ended {after:?} after its birth");
                life = life.min(after);
                continue;
            };
            let context = format!("{victim:?} killed after {after:?}, {}", killed.phase);
            println!("{context}: exit {:?}", killed.ended.code);
            aftermath(&mut rig, victim, &killed, &context);
            hits += 1;
            break;
        }
    }
    println!("{victim:?}: {hits} of {moments} moments hit");
    assert!(hits * 4 >= moments * 3, "{hits} of {moments} moments hit");
}

#[test]
fn the_next_run_works_after_a_kill_of_the_runner() {
    if require_or_skip(EXT4, "the_next_run_works_after_a_kill_of_the_runner").is_err() {
        return;
    }
    kill_at_moments(Victim::Runner, FEW, 1);
}

#[test]
fn a_kill_of_the_recorded_drive_is_no_finding() {
    if require_or_skip(EXT4, "a_kill_of_the_recorded_drive_is_no_finding").is_err() {
        return;
    }
    kill_at_moments(Victim::RecordedDrive, FEW, 2);
}

#[test]
fn a_kill_of_an_image_server_is_no_finding() {
    if require_or_skip(EXT4, "a_kill_of_an_image_server_is_no_finding").is_err() {
        return;
    }
    kill_at_moments(Victim::ImageServer, FEW, 3);
}

#[test]
#[ignore = "long: twenty moments of each process"]
fn the_next_run_works_after_a_kill_of_the_runner_at_twenty_moments() {
    if require_or_skip(
        EXT4,
        "the_next_run_works_after_a_kill_of_the_runner_at_twenty_moments",
    )
    .is_err()
    {
        return;
    }
    kill_at_moments(Victim::Runner, MANY, 11);
}

#[test]
#[ignore = "long: twenty moments of each process"]
fn a_kill_of_the_recorded_drive_at_twenty_moments_is_no_finding() {
    if require_or_skip(
        EXT4,
        "a_kill_of_the_recorded_drive_at_twenty_moments_is_no_finding",
    )
    .is_err()
    {
        return;
    }
    kill_at_moments(Victim::RecordedDrive, MANY, 12);
}

#[test]
#[ignore = "long: twenty moments of each process"]
fn a_kill_of_an_image_server_at_twenty_moments_is_no_finding() {
    if require_or_skip(
        EXT4,
        "a_kill_of_an_image_server_at_twenty_moments_is_no_finding",
    )
    .is_err()
    {
        return;
    }
    kill_at_moments(Victim::ImageServer, MANY, 13);
}
