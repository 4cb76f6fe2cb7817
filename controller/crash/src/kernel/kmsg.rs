//! The kernel log, from a point in time on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Most lines kept of one look at the kernel log.
const MAX_LINES: usize = 256;
/// Most records skipped in one look: the whole ring of a busy machine.
const MAX_RECORDS: usize = 100_000;

/// Reads `/dev/kmsg` from where it was opened on.
#[derive(Debug)]
pub struct KernelLog {
    file: Option<File>,
}

impl KernelLog {
    /// Opens at the end of the log. Without the right to read it (no root,
    /// `dmesg_restrict`) the log stays empty: [`KernelLog::available`] says so.
    #[must_use]
    pub fn open() -> KernelLog {
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        KernelLog { file: open().ok() }
    }

    /// Whether there is anything to read from.
    #[must_use]
    pub fn available(&self) -> bool {
        self.file.is_some()
    }

    /// The kernel's own lines since the last call that `keep` wants, without
    /// their prefix. What programs write to the log is not among them.
    pub fn drain(&mut self, keep: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(file) = &mut self.file else {
            return lines;
        };
        let mut buffer = [0u8; 8192];
        for _ in 0..MAX_RECORDS {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    let text = String::from_utf8_lossy(&buffer[..length]);
                    if let Some(message) = kernel_message(&text)
                        && lines.len() < MAX_LINES
                        && keep(message)
                    {
                        lines.push(message.to_owned());
                    }
                }
                // EPIPE: records were overwritten before we read them; go on.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        lines
    }
}

/// The message of a record (`priority,sequence,time,flags;message`, then
/// further lines), if the kernel wrote it: facility 0.
fn kernel_message(record: &str) -> Option<&str> {
    let (prefix, message) = record.split_once(';')?;
    let priority: u32 = prefix.split(',').next()?.parse().ok()?;
    (priority >> 3 == 0).then(|| message.lines().next().unwrap_or_default())
}

/// Whether a line speaks of this block device (`loop3`, not `loop31`).
#[must_use]
pub fn names_device(line: &str, device: &str) -> bool {
    line.match_indices(device).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + device.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(|c| c.is_ascii_digit())
    })
}

/// Whether a line names no loop device at all, as JBD2's do.
#[must_use]
pub fn names_no_device(line: &str) -> bool {
    !line.contains("loop")
}

/// Whether a fault that names no device is one of the stack: on a machine that
/// does other things too, somebody else's driver may warn at any moment.
#[must_use]
pub fn is_ours(line: &str) -> bool {
    [
        "ext4",
        "EXT4",
        "jbd2",
        "JBD2",
        "fs/buffer.c",
        "drivers/block/loop.c",
        "Comm: plugpull",
    ]
    .iter()
    .any(|sign| line.contains(sign))
}

/// Whether a line is a fault of the kernel's own: an oops, a warning with a
/// back trace, a file system forced read-only.
#[must_use]
pub fn is_fault(line: &str) -> bool {
    [
        "BUG:",
        "Oops",
        "WARNING: ",
        "Remounting filesystem read-only",
        "Kernel panic",
        "general protection fault",
    ]
    .iter()
    .any(|sign| line.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_program_wrote_is_not_the_kernels() {
        assert_eq!(
            kernel_message("4,1,2,-;EXT4-fs (loop1): x\n SUBSYSTEM=y"),
            Some("EXT4-fs (loop1): x")
        );
        assert_eq!(kernel_message("12,1,2,-;EXT4-fs (loop1): forged"), None);
        assert_eq!(kernel_message("garbage"), None);
    }

    #[test]
    fn a_warning_of_somebody_elses_driver_is_not_ours() {
        assert!(is_ours(
            "WARNING: CPU: 1 PID: 7 at fs/ext4/inode.c:99 ext4_x+0x1/0x2"
        ));
        assert!(!is_ours(
            "WARNING: CPU: 1 PID: 7 at drivers/gpu/drm/x.c:9 f+0x1/0x2"
        ));
    }

    #[test]
    fn a_device_is_not_taken_for_another_with_more_digits() {
        assert!(names_device("EXT4-fs (loop3): mounted", "loop3"));
        assert!(!names_device("EXT4-fs (loop31): mounted", "loop3"));
        assert!(names_no_device(
            "JBD2: Invalid checksum recovering data block 77 in log"
        ));
    }
}
