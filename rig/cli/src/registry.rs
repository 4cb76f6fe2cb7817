//! What a run has set up, written down before it is set up, so that the next
//! start (or `plugpull clean`) can end what a SIGKILL left.
//!
//! Nearly everything ends by itself: mounts are descriptors, loop devices
//! clear themselves at their last close, drive processes end when their
//! socket closes. What is left is what hangs: a drive process that does not
//! end, and through it a FUSE connection.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Most bytes of a registry file that are read back; a run writes a few kB.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Name that every loop device of ours carries, followed by the owner's pid.
pub const LOOP_NAME: &str = plugpull_crash::kernel::loopdev::OUR_NAMES;

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid.
    pub pid: u32,
    /// Clock ticks from boot to its start: field 22 of `/proc/PID/stat`.
    pub started_ticks: u64,
}

impl ProcessId {
    /// Of a process that runs now.
    #[must_use]
    pub fn of(pid: u32) -> Option<ProcessId> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold spaces and brackets: count from its last bracket.
        let started_ticks = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(19)?
            .parse()
            .ok()?;
        Some(ProcessId { pid, started_ticks })
    }

    /// Whether this very process still runs.
    #[must_use]
    pub fn runs(self) -> bool {
        ProcessId::of(self.pid) == Some(self)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Entry {
    Owner(ProcessId),
    Drive {
        process: ProcessId,
        fuse_minor: Option<u32>,
    },
}

/// This run's own file.
#[derive(Debug)]
pub struct Registry {
    path: PathBuf,
    file: Mutex<Option<fs::File>>,
}

/// Where registry files live: the runtime folder of the machine or the user.
#[must_use]
pub fn folder() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/run/plugpull");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("plugpull"),
        None => std::env::temp_dir().join(format!("plugpull-{}", nix::unistd::geteuid())),
    }
}

/// Whether nobody else can put files into the folder: what they say is done.
fn is_ours(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|data| {
        data.is_dir() && data.uid() == nix::unistd::geteuid().as_raw() && data.mode() & 0o022 == 0
    })
}

impl Registry {
    /// Opens this run's file. A machine without a writable runtime folder runs
    /// without one: everything but a hang ends by itself.
    #[must_use]
    pub fn open() -> Registry {
        let path = folder().join(format!("{}.jsonl", std::process::id()));
        // The owner is in the file before the file has its name: whoever cleans
        // at this moment would take a file without one for a dead run's.
        let owner = ProcessId::of(std::process::id()).map(Entry::Owner);
        let open = || -> io::Result<fs::File> {
            let folder = folder();
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)?;
            if !is_ours(&folder) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let temporary = path.with_extension("new");
            let file = fs::File::create(&temporary)?;
            if let Some(owner) = &owner {
                append(&file, owner)?;
            }
            fs::rename(&temporary, &path)?;
            Ok(file)
        };
        Registry {
            file: Mutex::new(open().ok()),
            path,
        }
    }

    fn write(&self, entry: &Entry) {
        let file = self
            .file
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(file) = file.as_ref() {
            let _ = append(file, entry);
        }
    }

    /// Writes down a drive process.
    pub fn drive(&self, pid: u32, fuse_minor: Option<u32>) {
        if let Some(process) = ProcessId::of(pid) {
            self.write(&Entry::Drive {
                process,
                fuse_minor,
            });
        }
    }
}

fn append(mut file: &fs::File, entry: &Entry) -> io::Result<()> {
    let mut line = serde_json::to_vec(entry).map_err(io::Error::other)?;
    line.push(b'\n');
    file.write_all(&line)
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What cleaning did, one line each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Things ended or removed.
    pub done: Vec<String>,
    /// Things that could not be, and why.
    pub left: Vec<String>,
}

/// Ends what runs that are gone have left. Touches only processes and devices
/// that a registry file or a loop device's own name shows to be ours.
#[must_use]
pub fn clean() -> Cleaned {
    let mut cleaned = Cleaned::default();
    let folder = folder();
    if !is_ours(&folder) {
        return cleaned;
    }
    let Ok(entries) = fs::read_dir(folder) else {
        return cleaned;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            clean_file(&path, &mut cleaned);
        }
    }
    cleaned
}

fn clean_file(path: &Path, cleaned: &mut Cleaned) {
    let too_long = fs::metadata(path).map_or(true, |data| data.len() > MAX_FILE_BYTES);
    let text = if too_long {
        String::new()
    } else {
        fs::read_to_string(path).unwrap_or_default()
    };
    let entries: Vec<Entry> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let owner = entries.iter().find_map(|entry| match entry {
        Entry::Owner(process) => Some(*process),
        Entry::Drive { .. } => None,
    });
    if owner.is_some_and(ProcessId::runs) {
        return;
    }
    for entry in &entries {
        let Entry::Drive {
            process,
            fuse_minor,
        } = entry
        else {
            continue;
        };
        if !process.runs() {
            continue;
        }
        // Its socket is closed, so it is about to end by itself.
        if waited(*process, Duration::from_millis(500)) {
            continue;
        }
        if let Some(minor) = fuse_minor {
            abort_fuse(*minor);
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(process.pid).unwrap_or(i32::MAX));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        if waited(*process, Duration::from_secs(2)) {
            cleaned
                .done
                .push(format!("ended drive process {}", process.pid));
        } else {
            cleaned
                .left
                .push(format!("drive process {} does not end", process.pid));
        }
    }
    if let Some(owner) = owner {
        clean_loops(owner.pid, cleaned);
    }
    match fs::remove_file(path) {
        Ok(()) => cleaned.done.push(format!("removed {}", path.display())),
        // Another plugpull was faster.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        // Another start cleaned at the same time.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => cleaned.left.push(format!("{}: {e}", path.display())),
    }
}

fn waited(process: ProcessId, most: Duration) -> bool {
    let until = Instant::now() + most;
    while process.runs() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Frees everybody who waits for a FUSE connection.
pub fn abort_fuse(minor: u32) {
    let connections = Path::new("/sys/fs/fuse/connections");
    let abort = connections.join(minor.to_string()).join("abort");
    if !abort.exists() {
        // fusectl may not be mounted; mounting it twice is harmless.
        let none: Option<&str> = None;
        let _ = nix::mount::mount(
            Some("fusectl"),
            connections,
            Some("fusectl"),
            nix::mount::MsFlags::empty(),
            none,
        );
    }
    let _ = fs::write(abort, "1");
}

fn clean_loops(owner: u32, cleaned: &mut Cleaned) {
    let name = format!("{LOOP_NAME}{owner}-");
    for device in plugpull_crash::kernel::loopdev::named(&name) {
        match plugpull_crash::kernel::loopdev::clear(&device) {
            Ok(()) => cleaned.done.push(format!("detached {}", device.display())),
            Err(e) => cleaned.left.push(format!("{}: {e}", device.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_not_taken_for_a_later_one_with_its_pid() {
        let ours = ProcessId::of(std::process::id()).expect("we run");
        assert!(ours.runs());
        assert!(
            !ProcessId {
                started_ticks: ours.started_ticks + 1,
                ..ours
            }
            .runs()
        );
    }
}
