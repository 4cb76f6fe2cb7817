//! ext4 on a block device: mkfs, mount, recovery, checker.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use plugpull_crash::kernel::fork::spawn;
use plugpull_crash::kernel::kmsg::{KernelLog, is_fault, is_ours, names_device, names_no_device};
use plugpull_crash::kernel::mount::{DetachedMount, MountFailure, MountOptions};
use plugpull_model::observation::{CheckerOutcome, RecoveryOutcome};
use plugpull_model::stack::{RecoveryStep, Stack};

use crate::error::RunError;

/// Most bytes kept of what a tool prints.
const MAX_OUTPUT_BYTES: usize = 4096;
/// Most messages kept of one mount.
const MAX_MESSAGES: usize = 32;

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

fn tool(name: &str) -> Result<PathBuf, RunError> {
    find_tool(name).ok_or_else(|| RunError::Tool {
        tool: name.to_owned(),
        reason: "not found on PATH, /usr/sbin or /sbin".to_owned(),
        remedy: "install e2fsprogs (apt-get install e2fsprogs)",
    })
}

fn run(command: &mut Command) -> std::io::Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C");
    spawn(command)?.wait_with_output()
}

fn bounded(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let mut end = text.len().min(MAX_OUTPUT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.trim().to_owned()
}

/// Makes the file system.
///
/// # Errors
/// When mke2fs is missing or fails, in its own words.
pub fn make(stack: &Stack, device: &Path) -> Result<(), RunError> {
    let program = tool("mkfs.ext4")?;
    let words = format!(
        "mkfs.ext4 -q -F {} {}",
        stack.mkfs.join(" "),
        device.display()
    );
    let output = run(Command::new(program)
        .arg("-q")
        .arg("-F")
        .args(&stack.mkfs)
        .arg(device))
    .map_err(|e| RunError::Tool {
        tool: words.clone(),
        reason: e.to_string(),
        remedy: "see that the tool is executable",
    })?;
    if output.status.success() {
        Ok(())
    } else {
        Err(RunError::Tool {
            tool: words,
            reason: format!("{} ({})", bounded(&output), output.status),
            remedy: "correct `mkfs` or `device_bytes` of the stack",
        })
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
    log.drain()
        .into_iter()
        .filter(|line| {
            names_device(line, device_name)
                || (nameless
                    && names_no_device(line)
                    && (line.starts_with("JBD2") || line.contains("EXT4-fs")))
                || (names_no_device(line) && is_fault(line) && is_ours(line))
        })
        .take(MAX_MESSAGES)
        .collect()
}

/// Runs the recovery procedure up to and with the mount.
pub fn recover(
    stack: &Stack,
    device: &Path,
) -> (RecoveryOutcome, Vec<String>, Option<DetachedMount>) {
    for step in &stack.recovery {
        match step {
            RecoveryStep::Command(words) => {
                if let Some(outcome) = command_step(words, device) {
                    return (outcome, Vec::new(), None);
                }
            }
            RecoveryStep::Mount => {
                return match mount(stack, device) {
                    Ok((mount, messages)) => (RecoveryOutcome::Recovered, messages, Some(mount)),
                    Err(failure) => (
                        RecoveryOutcome::MountFailed {
                            errno: failure.errno,
                        },
                        failure.messages,
                        None,
                    ),
                };
            }
        }
    }
    // A plan's recovery ends with the mount.
    let step = "mount".to_owned();
    (
        RecoveryOutcome::StepFailed {
            step,
            code: None,
            output: String::new(),
        },
        Vec::new(),
        None,
    )
}

fn command_step(words: &[String], device: &Path) -> Option<RecoveryOutcome> {
    let step = words.join(" ");
    let failed = |code: Option<i32>, output: String| {
        Some(RecoveryOutcome::StepFailed {
            step: step.clone(),
            code,
            output,
        })
    };
    let (Some(name), rest) = (words.first(), words.get(1..).unwrap_or_default()) else {
        return failed(None, "an empty step".to_owned());
    };
    let program = find_tool(name).unwrap_or_else(|| PathBuf::from(name));
    match run(Command::new(program).args(rest).arg(device)) {
        Err(e) => failed(None, e.to_string()),
        Ok(output) => match output.status.code() {
            // e2fsck: 0 = clean, 1 = errors corrected.
            Some(0 | 1) => None,
            code => failed(code, bounded(&output)),
        },
    }
}

/// Lets a fill reach every block: ext4 keeps a reserve of clusters that an
/// ordinary write never gets, and stale blocks may hide there. Best effort.
pub fn release_reserve(device_name: &str) {
    let _ = std::fs::write(format!("/sys/fs/ext4/{device_name}/reserved_clusters"), "0");
}

/// The file system's own checker, on a cleanly unmounted device. It changes
/// nothing; exit codes 0 and 1 are success.
///
/// # Errors
/// When it could not be run at all.
pub fn check(device: &Path) -> Result<CheckerOutcome, RunError> {
    let program = tool("e2fsck")?;
    let output = run(Command::new(program).arg("-fn").arg(device)).map_err(|e| RunError::Tool {
        tool: "e2fsck -fn".to_owned(),
        reason: e.to_string(),
        remedy: "see that the tool is executable",
    })?;
    let code = output.status.code();
    // Bits: 4 = errors left, 8 = operational error, 16 = usage error.
    if code.is_none_or(|code| code & !0b111 != 0) {
        return Err(RunError::Tool {
            tool: "e2fsck -fn".to_owned(),
            reason: format!("{} ({})", bounded(&output), output.status),
            remedy: "run it by hand on the image that `plugpull replay` keeps",
        });
    }
    Ok(CheckerOutcome {
        command: "e2fsck -fn".to_owned(),
        code,
        damage: code != Some(0) && code != Some(1),
        output: bounded(&output),
    })
}
