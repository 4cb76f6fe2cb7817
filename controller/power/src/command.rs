//! Runs one configured command, for a bounded time and with bounded output.

use crate::Clock;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// So much of either stream is kept; what follows is read and dropped.
pub const KEPT_OUTPUT_BYTES: usize = 16 * 1024;

/// How often a running command is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// One look reads no more than this, so that an endless writer cannot hold up the timeout. More
/// than a pipe holds: what a command wrote before it ended is read in one look.
const LOOK_BYTES: usize = 1024 * 1024;
/// A killed command that is not gone by then hangs in the kernel and is left behind.
const LOOKS_FOR_KILLED: usize = 400;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with this status.
    Exit(i32),
    /// A signal ended it.
    Signal(i32),
    /// It was killed because its time was up.
    TimedOut,
    /// It ran, but how it ended could not be learnt; the words say why.
    Lost(String),
}

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// How it ended.
    pub end: CommandEnd,
    /// At most [`KEPT_OUTPUT_BYTES`] of its standard output.
    pub stdout: Vec<u8>,
    /// At most [`KEPT_OUTPUT_BYTES`] of its standard error.
    pub stderr: Vec<u8>,
    /// Whether `stdout` lacks its tail.
    pub stdout_truncated: bool,
}

/// What runs the commands of an outlet.
pub trait Commands {
    /// Runs `argv` to its end, or until `timeout` has passed. An error means that it never started;
    /// anything that started has an output.
    fn run(&mut self, argv: &[String], timeout: Duration) -> io::Result<CommandOutput>;
}

/// Runs commands as processes, each in a process group of its own, without a shell and without
/// input. The environment is inherited: that is where a password belongs, never in an argument.
///
/// A command whose time is up is killed with its whole group. One that ends by itself may leave
/// processes of its own behind; these are not waited for, even if they hold its output open.
#[derive(Debug, Clone, Default)]
pub struct Processes<C> {
    clock: C,
}

impl<C: Clock> Processes<C> {
    /// Runs commands against `clock`.
    pub fn new(clock: C) -> Self {
        Self { clock }
    }

    fn watch(
        &self,
        group: &mut Group,
        timeout: Duration,
        out: &mut Kept,
        err: &mut Kept,
    ) -> io::Result<CommandEnd> {
        let (mut stdout, mut stderr) = (group.child.stdout.take(), group.child.stderr.take());
        stdout.iter().try_for_each(never_block)?;
        stderr.iter().try_for_each(never_block)?;
        let deadline = self
            .clock
            .now_ns()
            .saturating_add(timeout.as_nanos() as u64);
        loop {
            // The status first: what a command wrote before it ended is then in the pipe already.
            let ended = group.try_wait()?;
            out.drain(stdout.as_mut())?;
            err.drain(stderr.as_mut())?;
            if let Some(status) = ended {
                return Ok(match status.code() {
                    Some(code) => CommandEnd::Exit(code),
                    None => CommandEnd::Signal(status.signal().unwrap_or_default()),
                });
            }
            if self.clock.now_ns() >= deadline {
                return Ok(CommandEnd::TimedOut);
            }
            self.clock.sleep(LOOK);
        }
    }
}

impl<C: Clock> Commands for Processes<C> {
    fn run(&mut self, argv: &[String], timeout: Duration) -> io::Result<CommandOutput> {
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program named"))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let mut group = Group {
            child,
            reaped: false,
        };
        let (mut out, mut err) = (Kept::default(), Kept::default());
        let end = self
            .watch(&mut group, timeout, &mut out, &mut err)
            .unwrap_or_else(|error| CommandEnd::Lost(error.to_string()));
        drop(group);
        Ok(CommandOutput {
            end,
            stdout: out.bytes,
            stderr: err.bytes,
            stdout_truncated: out.truncated,
        })
    }
}

/// A child and its process group, killed together when dropped before the child has ended.
struct Group {
    child: Child,
    reaped: bool,
}

impl Group {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.reaped |= status.is_some();
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // Not reaped, so its id, which is also that of the group, cannot have been given to another.
        if let Ok(group) = i32::try_from(self.child.id()) {
            // It fails only if all are gone already.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        for _ in 0..LOOKS_FOR_KILLED {
            if !matches!(self.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Kept {
    fn drain(&mut self, stream: Option<&mut impl Read>) -> io::Result<()> {
        let Some(stream) = stream else { return Ok(()) };
        let mut chunk = [0; 8192];
        let mut total = 0;
        while total < LOOK_BYTES {
            let got = match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            total += got;
            let room = KEPT_OUTPUT_BYTES - self.bytes.len();
            self.bytes.extend_from_slice(&chunk[..got.min(room)]);
            self.truncated |= got > room;
        }
        Ok(())
    }
}

fn never_block(stream: &impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(stream, FcntlArg::F_GETFL)?);
    fcntl(stream, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonotonicClock;

    const LONG: Duration = Duration::from_secs(30);

    /// The commands under test are those of a shell; the code under test never uses one.
    fn sh(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn run(script: &str) -> CommandOutput {
        Processes::new(MonotonicClock)
            .run(&sh(script), LONG)
            .unwrap()
    }

    #[test]
    fn exit_status_and_both_streams_are_kept_apart() {
        let output = run("echo out; echo err >&2; exit 3");
        assert_eq!(output.end, CommandEnd::Exit(3));
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"out\n"[..], &b"err\n"[..])
        );
        assert!(!output.stdout_truncated);
    }

    #[test]
    fn a_command_ended_by_a_signal_says_so() {
        assert_eq!(run("kill -9 $$").end, CommandEnd::Signal(9));
    }

    #[test]
    fn output_beyond_the_bound_is_dropped_and_reported_and_never_blocks_the_command() {
        let output = run("head -c 3000000 /dev/zero");
        assert_eq!(output.end, CommandEnd::Exit(0));
        assert_eq!(output.stdout.len(), KEPT_OUTPUT_BYTES);
        assert!(output.stdout_truncated);
    }

    #[test]
    fn an_argument_is_never_read_by_a_shell() {
        let argv = ["echo", "$HOME; exit 7"].map(str::to_owned);
        let output = Processes::new(MonotonicClock).run(&argv, LONG).unwrap();
        assert_eq!(output.stdout, b"$HOME; exit 7\n");
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let argv = ["plugpull-no-such-program".to_owned()];
        let error = Processes::new(MonotonicClock).run(&argv, LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(Processes::new(MonotonicClock).run(&[], LONG).is_err());
    }

    /// Stands still until the file has a line, then says that all time has passed.
    struct Until(std::path::PathBuf);

    impl Until {
        fn line(&self) -> Option<String> {
            let text = std::fs::read_to_string(&self.0).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        }
    }

    impl Clock for Until {
        fn now_ns(&self) -> u64 {
            if self.line().is_some() { u64::MAX } else { 0 }
        }

        fn sleep(&self, time: Duration) {
            std::thread::sleep(time);
        }
    }

    #[test]
    fn a_command_whose_time_is_up_is_killed_with_its_children() {
        let file = std::env::temp_dir().join(format!("plugpull-group-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let clock = Until(file.clone());
        let output = Processes::new(&clock).run(&sh(&script), LONG).unwrap();
        let child = clock.line().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(output.end, CommandEnd::TimedOut);
        // A machine whose first process does not reap leaves the dead child as a zombie.
        let gone = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        for _ in 0..2000 {
            if gone() {
                return;
            }
            std::thread::sleep(LOOK);
        }
        panic!("the child {child} of the command lives on");
    }

    #[test]
    fn a_command_that_leaves_a_process_behind_is_not_waited_for_beyond_its_own_end() {
        let output = run("sleep 2 & echo off");
        assert_eq!(
            (output.end, &output.stdout[..]),
            (CommandEnd::Exit(0), &b"off\n"[..])
        );
    }
}
