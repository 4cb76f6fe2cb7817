//! ext4 on a block device: mkfs, mount, recovery, checker.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plugpull_crash::kernel::fork::let_go;
use plugpull_crash::kernel::kmsg::{KernelLog, is_fault, is_ours, names_device, names_no_device};
use plugpull_crash::kernel::mount::{DetachedMount, MountFailure, MountOptions};
use plugpull_model::observation::{CheckerOutcome, RecoveryOutcome};
use plugpull_model::stack::{RecoveryStep, Stack};

use crate::error::RunError;

use super::tool::{Ended, Patience, find_tool, run};

/// How long somebody else may keep a mount up that we have closed.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(10);
/// Most messages kept of one mount.
const MAX_MESSAGES: usize = 32;

fn tool(name: &str) -> Result<PathBuf, RunError> {
    find_tool(name).ok_or_else(|| RunError::Tool {
        tool: name.to_owned(),
        reason: "not found on PATH, /usr/sbin or /sbin".to_owned(),
        remedy: "install e2fsprogs (apt-get install e2fsprogs)",
    })
}

/// Makes the file system.
///
/// # Errors
/// When mke2fs is missing or fails, in its own words.
pub fn make(stack: &Stack, device: &Path, patience: Patience<'_>) -> Result<(), RunError> {
    let program = tool("mkfs.ext4")?;
    let words = format!(
        "mkfs.ext4 -q -F {} {}",
        stack.mkfs.join(" "),
        device.display()
    );
    let failed = |reason: String, remedy| RunError::Tool {
        tool: words.clone(),
        reason,
        remedy,
    };
    let mut command = Command::new(program);
    command.arg("-q").arg("-F").args(&stack.mkfs).arg(device);
    match run(&mut command, patience) {
        Err(e) => Err(failed(e.to_string(), "see that the tool is executable")),
        Ok(Ended::Stopped) => Err(RunError::Interrupted),
        Ok(Ended::TimedOut) => Err(failed(
            "it did not end in time".to_owned(),
            "raise `hang_after_ms` of the budget",
        )),
        Ok(Ended::Exited { status, .. }) if status.success() => Ok(()),
        Ok(Ended::Exited { status, output }) => Err(failed(
            format!("{output} ({status})"),
            "correct `mkfs` or `device_bytes` of the stack",
        )),
    }
}

/// Mounts as the stack says.
///
/// # Errors
/// The kernel's refusal.
pub fn mount(stack: &Stack, device: &Path) -> Result<(DetachedMount, Vec<String>), MountFailure> {
    let source = device.to_string_lossy();
    DetachedMount::new(
        stack.filesystem.name(),
        &source,
        &MountOptions::parse(&stack.mount),
    )
}

/// Takes a mount down and waits until the kernel has let go of its device.
///
/// Closing our descriptor is not enough: whoever else holds the mount at this
/// moment keeps it up. A child that was just started does: the call that
/// starts it returns before its copies of our descriptors are gone, and the
/// file system then goes down in the child's time, not in ours.
///
/// # Errors
/// The kernel's error; `ResourceBusy` when somebody keeps the mount.
pub fn unmount(mounted: DetachedMount, device: &Path) -> io::Result<()> {
    let_go(|| drop(mounted));
    let until = Instant::now() + UNMOUNT_WITHIN;
    loop {
        // A mounted file system claims its device, and so does O_EXCL. Opened
        // and closed while no child can be started, which would claim it too.
        let claimed = let_go(|| {
            OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_EXCL)
                .open(device)
                .map(drop)
        });
        match claimed {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(100));
            }
            other => return other,
        }
    }
}

/// The options in effect, as the kernel prints them for this device.
#[must_use]
pub fn effective_options(device_name: &str) -> String {
    std::fs::read_to_string(format!("/proc/fs/ext4/{device_name}/options"))
        .map(|text| text.lines().collect::<Vec<_>>().join(","))
        .unwrap_or_default()
}

/// What the kernel log says of a device since the last look. Lines of JBD2
/// name no device: they are kept only when asked for.
pub fn kernel_lines(log: &mut KernelLog, device_name: &str, nameless: bool) -> Vec<String> {
    let mut lines = log.drain(|line| {
        names_device(line, device_name)
            || (nameless
                && names_no_device(line)
                && (line.starts_with("JBD2") || line.contains("EXT4-fs")))
            || (names_no_device(line) && is_fault(line) && is_ours(line))
    });
    lines.truncate(MAX_MESSAGES);
    lines
}

/// How a recovery ended, what the kernel said, and the mount if there is one.
pub type Recovery = (RecoveryOutcome, Vec<String>, Option<DetachedMount>);

/// Runs the recovery procedure up to and with the mount.
///
/// # Errors
/// When a step could not do its work at all: a tool that is missing or was
/// called wrongly says nothing of the stack.
pub fn recover(stack: &Stack, device: &Path, patience: Patience<'_>) -> Result<Recovery, String> {
    for step in &stack.recovery {
        match step {
            RecoveryStep::Command(words) => {
                if let Some(outcome) = command_step(words, device, patience)? {
                    return Ok((outcome, Vec::new(), None));
                }
            }
            RecoveryStep::Mount => {
                return Ok(match mount(stack, device) {
                    Ok((mount, messages)) => (RecoveryOutcome::Recovered, messages, Some(mount)),
                    Err(failure) => (
                        RecoveryOutcome::MountFailed {
                            errno: failure.errno,
                        },
                        failure.messages,
                        None,
                    ),
                });
            }
        }
    }
    Err("a recovery without a mount; plan.json is damaged".to_owned())
}

fn command_step(
    words: &[String],
    device: &Path,
    patience: Patience<'_>,
) -> Result<Option<RecoveryOutcome>, String> {
    let step = words.join(" ");
    let (Some(name), rest) = (words.first(), words.get(1..).unwrap_or_default()) else {
        return Err("an empty recovery step; plan.json is damaged".to_owned());
    };
    let program = find_tool(name).unwrap_or_else(|| PathBuf::from(name));
    match run(Command::new(program).args(rest).arg(device), patience) {
        Err(e) => Err(format!(
            "recovery step `{step}` could not be started: {e}; install the tool"
        )),
        Ok(Ended::Stopped) => Err("interrupted".to_owned()),
        Ok(Ended::TimedOut) => Ok(Some(RecoveryOutcome::Hung)),
        Ok(Ended::Exited { status, output }) => match status.code() {
            // e2fsck: 0 = clean, 1 = errors corrected.
            Some(0 | 1) => Ok(None),
            // Bits 8, 16, 32, 128: the tool itself failed, was called wrongly or was stopped.
            Some(code) if code & !0b111 != 0 => Err(format!(
                "recovery step `{step}` failed by itself with exit code {code}: {output}; correct `recovery`"
            )),
            code => Ok(Some(RecoveryOutcome::StepFailed { step, code, output })),
        },
    }
}

/// The file system's own checker, on a cleanly unmounted device. It changes
/// nothing; exit codes 0 and 1 are success.
///
/// # Errors
/// When it could not be run at all.
pub fn check(device: &Path, patience: Patience<'_>) -> Result<CheckerOutcome, RunError> {
    const COMMAND: &str = "e2fsck -fn";
    let failed = |reason: String, remedy| RunError::Tool {
        tool: COMMAND.to_owned(),
        reason,
        remedy,
    };
    let program = tool("e2fsck")?;
    match run(Command::new(program).arg("-fn").arg(device), patience) {
        Err(e) => Err(failed(e.to_string(), "see that the tool is executable")),
        Ok(Ended::Stopped) => Err(RunError::Interrupted),
        Ok(Ended::TimedOut) => Err(failed(
            "it did not end in time".to_owned(),
            "raise `hang_after_ms` of the budget",
        )),
        Ok(Ended::Exited { status, output }) => match status.code() {
            // Bits: 1 = errors corrected, 4 = errors left, 8 = operational error, 16 = usage error.
            Some(code) if code & !0b111 == 0 => Ok(CheckerOutcome {
                command: COMMAND.to_owned(),
                code: Some(code),
                damage: code > 1,
                output,
            }),
            _ => Err(failed(
                format!("{output} ({status})"),
                "run it by hand on a crash image; it may be short of memory",
            )),
        },
    }
}
