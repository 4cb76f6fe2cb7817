//! What the tests that run the `plugpull` binary share.
//!
//! Each process that a test starts carries a mark of its own in its
//! environment, and so do its children: what is left of a run is found by that
//! mark, never by a program's name.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plugpull::capability::Capability;
use plugpull_crash::kernel::loopdev;
use serde_json::Value;
use tempfile::TempDir;

/// The binary under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_plugpull");
/// What an ext4 stack needs.
pub const EXT4: &[Capability] = &Capability::EXT4_STACK;
/// The environment variable that marks our processes.
const MARK: &str = "PLUGPULL_TEST_MARK";
/// Longer than any run of these tests takes on a busy machine.
pub const LONG: Duration = Duration::from_secs(300);

/// A folder that goes with the test, unless the test fails: then it stays, for
/// whoever looks for the reason.
#[derive(Debug)]
pub struct Folder(Option<TempDir>);

/// A new folder.
pub fn folder() -> Folder {
    Folder(Some(tempfile::tempdir().expect("a folder")))
}

impl Folder {
    pub fn path(&self) -> &Path {
        self.0
            .as_ref()
            .expect("it is there until it is dropped")
            .path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = self.0.take()
        {
            println!("kept: {}", folder.keep().display());
        }
    }
}

/// A mark that no other process carries.
pub fn new_mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", std::process::id())
}

/// A process of ours that runs, and where its output goes.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    mark: String,
    started: Instant,
}

/// A process of ours that ended.
#[derive(Debug)]
pub struct Ended {
    pub pid: u32,
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub mark: String,
    pub took: Duration,
}

/// The program with these arguments, as a command that a test may change.
pub fn command<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    command
}

/// Starts a command with a mark, its output kept in files.
pub fn start(command: &mut Command) -> Running {
    let stdout = tempfile::tempfile().expect("a file for stdout");
    let stderr = tempfile::tempfile().expect("a file for stderr");
    let mark = new_mark();
    let child = command
        .env(MARK, &mark)
        .env_remove("NO_COLOR")
        .env("COLUMNS", "120")
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().expect("a second handle"))
        .stderr(stderr.try_clone().expect("a second handle"))
        .spawn()
        .expect("the program starts");
    Running {
        child,
        stdout,
        stderr,
        mark,
        started: Instant::now(),
    }
}

/// Runs the program to its end.
pub fn plugpull<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Ended {
    start(&mut command(arguments)).wait(LONG)
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ended {
    start(command).wait(LONG)
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("it can be waited for")
            .is_some()
    }

    pub fn signal(&self, signal: Signal) {
        // Not waited for yet, so the pid is still its own.
        send(self.pid(), signal);
    }

    /// Waits for it to end.
    ///
    /// # Panics
    /// When it takes longer than `most`: it is killed then.
    pub fn wait(mut self, most: Duration) -> Ended {
        let until = Instant::now() + most;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            if Instant::now() > until {
                let states = marked(&self.mark);
                self.signal(Signal::SIGKILL);
                let _ = self.child.wait();
                panic!("it did not end within {most:?}; its processes: {states:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Ended {
            pid: self.child.id(),
            code: status.code(),
            stdout: text(&mut self.stdout),
            stderr: text(&mut self.stderr),
            mark: self.mark,
            took: self.started.elapsed(),
        }
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("seekable");
    file.read_to_end(&mut bytes).expect("readable");
    String::from_utf8(bytes).expect("UTF-8")
}

/// Sends a signal to one process.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid"));
    let _ = kill(pid, signal);
}

impl Ended {
    /// The one line on stderr.
    #[track_caller]
    pub fn one_line(&self) -> &str {
        assert!(
            self.stderr.ends_with('\n') && self.stderr.lines().count() == 1,
            "one line: {:?}",
            self.stderr
        );
        assert!(
            self.stderr.starts_with("plugpull: "),
            "it names the program: {:?}",
            self.stderr
        );
        self.stderr.trim_end()
    }

    /// Asserts the exit code, and that nothing panicked.
    #[track_caller]
    pub fn exits(&self, code: i32) -> &Ended {
        self.is_calm();
        assert_eq!(
            self.code,
            Some(code),
            "exit code; stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Asserts that it did not panic.
    #[track_caller]
    pub fn is_calm(&self) {
        assert!(
            !self.stderr.contains("panicked") && !self.stderr.contains("bug of plugpull"),
            "no panic: {}",
            self.stderr
        );
        assert_ne!(self.code, Some(101), "no panic");
    }

    /// Asserts that neither a process, a loop device nor a registry file of it is left.
    #[track_caller]
    pub fn leaves_nothing(&self) {
        nothing_runs(&self.mark, self.pid);
        let registry = registry_file(self.pid);
        assert!(!registry.exists(), "{} is left", registry.display());
    }
}

/// Where a run by root writes down what it sets up.
pub fn registry_file(pid: u32) -> PathBuf {
    PathBuf::from(format!("/run/plugpull/{pid}.jsonl"))
}

/// Asserts that no process with this mark and no loop device of this pid is
/// left. What ends by itself is given a moment to do so.
#[track_caller]
pub fn nothing_runs(mark: &str, pid: u32) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let processes = marked(mark);
        let loops = loopdev::named(&format!("plugpull-{pid}"));
        if processes.is_empty() && loops.is_empty() {
            return;
        }
        assert!(
            Instant::now() < until,
            "left: processes {processes:?}, loop devices {loops:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub pid: u32,
    pub parent: u32,
    /// `R`, `S`, `D`, ...
    pub state: char,
    pub arguments: Vec<String>,
}

impl Seen {
    /// Whether it is a drive process of plugpull.
    pub fn is_drive(&self) -> bool {
        self.arguments.get(1).is_some_and(|word| word == "drive")
    }

    /// Whether it has a recording's log open: the recorded drive, not an image server.
    pub fn records(&self) -> bool {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else {
            return false;
        };
        entries
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|target| target.to_string_lossy().contains("writelog.raw"))
    }
}

fn see(pid: u32) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(Seen {
        pid,
        parent,
        state,
        arguments: line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    })
}

fn pids() -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The live processes with this mark.
pub fn marked(mark: &str) -> Vec<Seen> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    pids()
        .into_iter()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|entry| entry == wanted)
            })
        })
        .filter_map(see)
        .filter(|seen| seen.state != 'Z')
        .collect()
}

/// The live children of `runner`.
pub fn children_of(runner: u32) -> Vec<Seen> {
    pids()
        .into_iter()
        .filter_map(see)
        .filter(|seen| seen.parent == runner && seen.state != 'Z')
        .collect()
}

/// The live drive processes that `runner` has started.
pub fn drives_of(runner: u32) -> Vec<Seen> {
    let mut drives = children_of(runner);
    drives.retain(Seen::is_drive);
    drives
}

/// Reads a JSON file.
#[track_caller]
pub fn json(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The events of a run directory, as many as are whole.
pub fn events(out: &Path) -> Vec<Value> {
    fs::read_to_string(out.join("events.jsonl"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// How many events of a kind there are.
pub fn count(events: &[Value], kind: &str) -> usize {
    events
        .iter()
        .filter(|event| event.get(kind).is_some() || event.as_str() == Some(kind))
        .count()
}

/// The cell of a report, by its id.
#[track_caller]
pub fn cell<'a>(report: &'a Value, id: &str) -> &'a Value {
    report["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .find(|cell| cell["id"] == id)
        .unwrap_or_else(|| panic!("no cell {id}"))
}

/// The verdict of every cell, by id.
pub fn verdicts(report: &Value) -> Vec<(String, String)> {
    report["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .map(|cell| {
            let word = |key: &str| cell[key].as_str().unwrap_or_default().to_owned();
            (word("id"), word("verdict"))
        })
        .collect()
}

/// Waits until `what` holds, or the process ended. Returns whether it holds.
pub fn until(running: &mut Running, mut what: impl FnMut() -> bool) -> bool {
    let most = Instant::now() + LONG;
    loop {
        if what() {
            return true;
        }
        if running.has_ended() {
            return what();
        }
        assert!(Instant::now() < most, "it never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A scenario over the honest `ext4` stack, written into a folder.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub workload: String,
    pub stacks: Vec<(String, String)>,
    pub drives: Vec<(String, String)>,
    /// Stack, drive and role of single cells.
    pub cells: Vec<(String, String, String)>,
    pub budget: String,
}

/// Keys of a drive with an honest volatile cache and 4 KiB blocks.
pub const VOLATILE: &str = "cache = \"volatile\"\nlogical_block_bytes = 4096\n\
    atomic_write_bytes = 4096\nservice = { write_us = 20, flush_us = 50 }\n";
/// The same with 512-byte blocks.
pub const VOLATILE_512: &str = "cache = \"volatile\"\nlogical_block_bytes = 512\n\
    atomic_write_bytes = 512\nservice = { write_us = 20, flush_us = 50 }\n";
/// A drive that loses nothing that has completed.
pub const PROTECTED: &str = "cache = \"protected\"\nlogical_block_bytes = 4096\n\
    atomic_write_bytes = 4096\nservice = { write_us = 20, flush_us = 50 }\n";
/// A drive that says yes to a flush and does nothing.
pub const LYING: &str = "cache = \"volatile\"\nflush = \"ignored\"\nfua = \"ignored\"\n\
    logical_block_bytes = 4096\natomic_write_bytes = 4096\n\
    service = { write_us = 20, flush_us = 50 }\n";

/// Keys of an ext4 stack with these mount options.
pub fn ext4(mount: &str) -> String {
    format!(
        "filesystem = \"ext4\"\ndevice_bytes = \"64 MiB\"\nmkfs = [\"-b\", \"4096\", \"-J\", \
         \"size=4\", \"-E\", \"lazy_itable_init=0,lazy_journal_init=0,nodiscard\"]\n\
         mount = \"{mount}\"\n"
    )
}

impl Scenario {
    /// One honest ext4 stack on these drives.
    pub fn honest(workload: &str, drives: &[(&str, &str)], budget: &str) -> Scenario {
        let owned = |(name, keys): &(&str, &str)| ((*name).to_owned(), (*keys).to_owned());
        Scenario {
            workload: workload.to_owned(),
            stacks: vec![("ext4-barrier".to_owned(), ext4("barrier=1"))],
            drives: drives.iter().map(owned).collect(),
            cells: Vec::new(),
            budget: budget.to_owned(),
        }
    }

    /// The TOML text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "schema = 1\nname = \"test\"\n[workload.append-log]\n{}\n",
            self.workload
        );
        for (name, keys) in &self.stacks {
            text.push_str(&format!("[stacks.{name}]\n{keys}\n"));
        }
        for (name, keys) in &self.drives {
            text.push_str(&format!("[drives.{name}]\n{keys}\n"));
        }
        if self.cells.is_empty() {
            let names = |list: &[(String, String)]| {
                list.iter()
                    .map(|(name, _)| format!("\"{name}\""))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            text.push_str(&format!(
                "[matrix]\nstacks = [{}]\ndrives = [{}]\n",
                names(&self.stacks),
                names(&self.drives)
            ));
        }
        for (stack, drive, role) in &self.cells {
            text.push_str(&format!(
                "[[cells]]\nstack = \"{stack}\"\ndrive = \"{drive}\"\nrole = \"{role}\"\n"
            ));
        }
        text.push_str(&format!("[budget]\n{}\n", self.budget));
        text
    }

    /// Writes it into a folder.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("scenario.toml");
        fs::write(&path, self.text()).expect("written");
        path
    }
}

/// A small generator of numbers for choosing moments (SplitMix64).
#[derive(Debug)]
pub struct Moments(u64);

impl Moments {
    /// With the seed that `PLUGPULL_TEST_SEED` gives, or this one; printed.
    pub fn new(default: u64) -> Moments {
        let seed = std::env::var("PLUGPULL_TEST_SEED")
            .ok()
            .map_or(default, |text| text.parse().expect("a number"));
        println!("PLUGPULL_TEST_SEED={seed}");
        Moments(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A moment in the `index`-th of `parts` equal parts of `whole`.
    pub fn within(&mut self, whole: Duration, index: u32, parts: u32) -> Duration {
        let part = whole / parts;
        let into = u64::try_from(part.as_nanos()).expect("short").max(1);
        part * index + Duration::from_nanos(self.next() % into)
    }
}
