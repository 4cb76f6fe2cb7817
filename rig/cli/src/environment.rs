//! What a run ran on, for its report.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use plugpull_crash::kernel::fork::spawn;

use crate::stack::tool::find_tool;

/// Facts by name: our version, the kernel, the processors, the tools.
#[must_use]
pub fn facts() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: String| {
        facts.insert(name.to_owned(), value);
    };
    add("plugpull", env!("CARGO_PKG_VERSION").to_owned());
    if let Ok(name) = nix::sys::utsname::uname() {
        add(
            "kernel",
            format!(
                "{} {}",
                name.release().to_string_lossy(),
                name.version().to_string_lossy()
            ),
        );
        add("machine", name.machine().to_string_lossy().into_owned());
    }
    add(
        "processors",
        std::thread::available_parallelism()
            .map_or(0, std::num::NonZero::get)
            .to_string(),
    );
    if let Some(memory) = first_line("/proc/meminfo") {
        add("memory", memory);
    }
    for (name, argument) in [("mkfs.ext4", "-V"), ("e2fsck", "-V")] {
        if let Some(version) = version(name, argument) {
            add(name, version);
        }
    }
    facts
}

fn first_line(path: &str) -> Option<String> {
    Some(
        std::fs::read_to_string(path)
            .ok()?
            .lines()
            .next()?
            .to_owned(),
    )
}

fn version(name: &str, argument: &str) -> Option<String> {
    let mut command = Command::new(find_tool(name)?);
    command
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = spawn(&mut command).ok()?.wait_with_output().ok()?;
    // mke2fs and e2fsck print their version to standard error.
    let text = if output.stderr.is_empty() {
        output.stdout
    } else {
        output.stderr
    };
    Some(
        String::from_utf8_lossy(&text)
            .lines()
            .next()?
            .trim()
            .to_owned(),
    )
}
