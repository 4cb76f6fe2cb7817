//! Programs that a stack needs: found, run with patience, ended by their group.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use plugpull_crash::kernel::fork::spawn;

/// Most bytes kept of what a tool prints.
const MAX_OUTPUT_BYTES: u64 = 4096;
/// How often a running tool is looked at.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// How long a tool may take, and who may end it sooner.
#[derive(Clone, Copy, Debug)]
pub struct Patience<'a> {
    /// It is ended after this time.
    pub within: Duration,
    /// It is ended when this is set.
    pub stop: &'a AtomicBool,
}

/// How a tool ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself.
    Exited {
        /// With this status.
        status: ExitStatus,
        /// Having printed this, bounded.
        output: String,
    },
    /// By us: it took too long.
    TimedOut,
    /// By us: the run is to stop.
    Stopped,
}

/// Finds a tool on PATH or where Debian keeps administrators' tools, which the
/// PATH of a service or a container often lacks.
#[must_use]
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Runs a tool to its end, or ends it with everything it started.
///
/// # Errors
/// When it cannot be started or waited for.
pub fn run(command: &mut Command, patience: Patience<'_>) -> io::Result<Ended> {
    // A file and no pipe: a tool's own children may keep a pipe open for ever.
    let mut output = File::from(memfd_create("plugpull-output", MFdFlags::MFD_CLOEXEC)?);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(output.try_clone()?))
        .env("LC_ALL", "C")
        .process_group(0);
    let mut child = spawn(command)?;
    let group = i32::try_from(child.id()).map_err(io::Error::other)?;
    let until = Instant::now() + patience.within;
    loop {
        if let Some(status) = child.try_wait()? {
            let mut bytes = Vec::new();
            output.seek(SeekFrom::Start(0))?;
            output.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
            let output = String::from_utf8_lossy(&bytes).trim().to_owned();
            return Ok(Ended::Exited { status, output });
        }
        let stopped = patience.stop.load(Ordering::Relaxed);
        if stopped || Instant::now() >= until {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            child.wait()?;
            return Ok(if stopped {
                Ended::Stopped
            } else {
                Ended::TimedOut
            });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, within_ms: u64, stop: bool) -> Ended {
        let stop = AtomicBool::new(stop);
        let patience = Patience {
            within: Duration::from_millis(within_ms),
            stop: &stop,
        };
        run(Command::new("sh").args(["-c", text]), patience).expect("sh runs")
    }

    #[test]
    fn a_tool_that_ends_gives_its_status_and_words() {
        let Ended::Exited { status, output } =
            shell("echo out; echo err >&2; exit 3", 10_000, false)
        else {
            panic!("it ended by itself");
        };
        assert_eq!((status.code(), output.as_str()), (Some(3), "out\nerr"));
    }

    #[test]
    fn a_tool_that_hangs_is_ended_with_its_children() {
        let began = Instant::now();
        assert!(matches!(
            shell("sleep 100 & wait", 50, false),
            Ended::TimedOut
        ));
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_tool_is_ended_when_the_run_is_to_stop() {
        assert!(matches!(shell("sleep 100", 100_000, true), Ended::Stopped));
    }
}
