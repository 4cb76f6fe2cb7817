//! Mounts without mount points, through `fsopen`, `fsconfig` and `fsmount`.
//!
//! A [`DetachedMount`] is only a descriptor: it is in no mount table, every
//! access goes through `*at` calls, and it is gone when its last descriptor is
//! closed. SIGKILL of the process that holds it therefore unmounts it.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_NOATIME: u64 = 0x10;
const MOUNT_ATTR_STRICTATIME: u64 = 0x20;
const MOUNT_ATTR_NODIRATIME: u64 = 0x80;

/// Most messages read from one mount descriptor; the kernel keeps eight.
const MAX_MESSAGES: usize = 64;

/// Mount options split into the three places the mount API wants them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    attributes: u64,
    flags: Vec<String>,
    parameters: Vec<(String, Option<String>)>,
}

impl MountOptions {
    /// Splits a `mount -o` line. Per-mount attributes (`noatime`) and flags of
    /// the super block (`lazytime`, `ro`) are told from the options that the
    /// file system itself reads; `defaults` and the opposites that are the
    /// default are dropped.
    #[must_use]
    pub fn parse(line: &str) -> MountOptions {
        let mut options = MountOptions::default();
        for word in line
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            match word {
                "defaults" | "rw" | "atime" | "diratime" | "suid" | "dev" | "exec" | "async"
                | "relatime" | "nolazytime" | "auto" | "noauto" | "user" | "nofail" | "_netdev" => {
                }
                "noatime" => options.attributes |= MOUNT_ATTR_NOATIME,
                "nodiratime" => options.attributes |= MOUNT_ATTR_NODIRATIME,
                "strictatime" => options.attributes |= MOUNT_ATTR_STRICTATIME,
                "nosuid" => options.attributes |= MOUNT_ATTR_NOSUID,
                "nodev" => options.attributes |= MOUNT_ATTR_NODEV,
                "noexec" => options.attributes |= MOUNT_ATTR_NOEXEC,
                "ro" => {
                    options.attributes |= MOUNT_ATTR_RDONLY;
                    options.flags.push("ro".to_owned());
                }
                "sync" | "dirsync" | "lazytime" => options.flags.push(word.to_owned()),
                _ => options.parameters.push(match word.split_once('=') {
                    Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                    None => (word.to_owned(), None),
                }),
            }
        }
        options
    }
}

/// Why a mount failed: the error number and what the kernel said through the
/// mount descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFailure {
    /// The call that failed.
    pub call: String,
    /// The error number.
    pub errno: i32,
    /// The kernel's own words, without their `e ` / `w ` prefixes.
    pub messages: Vec<String>,
}

/// A mounted file system that lives as long as this descriptor.
#[derive(Debug)]
pub struct DetachedMount {
    fd: OwnedFd,
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl DetachedMount {
    /// Mounts `source` as `filesystem` with `options`.
    ///
    /// # Errors
    /// The failing call, its error number and the kernel's words.
    pub fn new(
        filesystem: &str,
        source: &str,
        options: &MountOptions,
    ) -> Result<(DetachedMount, Vec<String>), MountFailure> {
        let context = fsopen(filesystem).map_err(|e| failure("fsopen", &e, None))?;
        let set = |key: &str, value: Option<&str>| {
            fsconfig(&context, key, value).map_err(|e| {
                let call = match value {
                    Some(value) => format!("fsconfig {key}={value}"),
                    None => format!("fsconfig {key}"),
                };
                failure(&call, &e, Some(&context))
            })
        };
        set("source", Some(source))?;
        for flag in &options.flags {
            set(flag, None)?;
        }
        for (key, value) in &options.parameters {
            set(key, value.as_deref())?;
        }
        create(&context).map_err(|e| failure("mount", &e, Some(&context)))?;
        let fd = fsmount(&context, options.attributes)
            .map_err(|e| failure("fsmount", &e, Some(&context)))?;
        Ok((DetachedMount { fd }, messages(&context)))
    }

    /// Wraps a mount descriptor that another process made.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> DetachedMount {
        DetachedMount { fd }
    }

    /// Writes everything of this file system to its device: `syncfs(2)`, never
    /// `sync(2)`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn syncfs(&self) -> io::Result<()> {
        // fsmount gives an O_PATH descriptor, which syncfs does not take.
        let flags = nix::fcntl::OFlag::O_RDONLY
            | nix::fcntl::OFlag::O_DIRECTORY
            | nix::fcntl::OFlag::O_CLOEXEC;
        let root = nix::fcntl::openat(self.fd.as_fd(), ".", flags, nix::sys::stat::Mode::empty())?;
        nix::unistd::syncfs(root)?;
        Ok(())
    }
}

/// Mounts a FUSE file system that the holder of `device` (an open `/dev/fuse`)
/// serves.
///
/// # Errors
/// The failing call, its error number and the kernel's words.
pub fn mount_fuse(device: BorrowedFd<'_>) -> Result<DetachedMount, MountFailure> {
    let options = MountOptions {
        attributes: MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        flags: Vec::new(),
        parameters: [
            ("fd", device.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", "0".to_owned()),
            ("group_id", "0".to_owned()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), Some(value)))
        .collect(),
    };
    DetachedMount::new("fuse", "plugpull", &options).map(|(mount, _)| mount)
}

fn failure(call: &str, error: &io::Error, context: Option<&OwnedFd>) -> MountFailure {
    MountFailure {
        call: call.to_owned(),
        errno: error.raw_os_error().unwrap_or(libc::EIO),
        messages: context.map(messages).unwrap_or_default(),
    }
}

fn messages(context: &OwnedFd) -> Vec<String> {
    let Ok(duplicate) = context.try_clone() else {
        return Vec::new();
    };
    let mut file = File::from(duplicate);
    let mut found = Vec::new();
    let mut buffer = [0u8; 4096];
    while found.len() < MAX_MESSAGES {
        match file.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                let text = String::from_utf8_lossy(&buffer[..length]);
                let text = text.trim_end();
                // "e text", "w text", "i text"
                found.push(text.get(2..).unwrap_or(text).to_owned());
            }
        }
    }
    found
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn owned(rc: libc::c_long) -> io::Result<OwnedFd> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = libc::c_int::try_from(rc).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel just gave us this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn fsopen(filesystem: &str) -> io::Result<OwnedFd> {
    let name = c_string(filesystem)?;
    // SAFETY: `name` is a C string that outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) })
}

fn fsconfig(context: &OwnedFd, key: &str, value: Option<&str>) -> io::Result<()> {
    let key = c_string(key)?;
    let value = value.map(c_string).transpose()?;
    let (command, pointer) = match &value {
        Some(value) => (FSCONFIG_SET_STRING, value.as_ptr()),
        None => (FSCONFIG_SET_FLAG, std::ptr::null()),
    };
    // SAFETY: `key` and `value` are C strings that outlive the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            command,
            key.as_ptr(),
            pointer,
            0,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn create(context: &OwnedFd) -> io::Result<()> {
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: FSCONFIG_CMD_CREATE takes null key and value.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            none,
            none,
            0,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn fsmount(context: &OwnedFd, attributes: u64) -> io::Result<OwnedFd> {
    // SAFETY: takes a descriptor and two integers.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            attributes,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_vfs_never_reach_the_file_system() {
        let options =
            MountOptions::parse("noatime,nodiratime,commit=1,lazytime,barrier=0,defaults,ro");
        assert_eq!(
            options.attributes,
            MOUNT_ATTR_NOATIME | MOUNT_ATTR_NODIRATIME | MOUNT_ATTR_RDONLY
        );
        assert_eq!(options.flags, ["lazytime", "ro"]);
        assert_eq!(
            options.parameters,
            [
                ("commit".into(), Some("1".into())),
                ("barrier".into(), Some("0".into()))
            ]
        );
    }
}
