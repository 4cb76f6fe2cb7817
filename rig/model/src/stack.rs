//! What lies between the workload and the drive.

use serde::{Deserialize, Serialize};

use crate::units::Size;
use crate::workload::Acknowledge;

/// The file system of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filesystem {
    /// The kernel's ext4.
    Ext4,
    /// None: records go to the device itself. Needs no root.
    None,
}

impl Filesystem {
    /// The name the kernel and the reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::None => "none",
        }
    }
}

/// A stack as a scenario describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackSpec {
    /// The file system.
    pub filesystem: Filesystem,
    /// Size of the device. Default 64 MiB.
    #[serde(default = "default_device_bytes")]
    pub device_bytes: Size,
    /// Words after `mkfs.<filesystem> -q`, before the device.
    #[serde(default)]
    pub mkfs: Vec<String>,
    /// Mount options, comma-separated, exactly as for `mount -o`.
    #[serde(default)]
    pub mount: String,
    /// The recovery procedure, in order: `mount`, or a command that gets the
    /// device as its last word. Default: `["mount"]`.
    #[serde(default = "default_recovery")]
    pub recovery: Vec<String>,
    /// Overrides the workload's acknowledging call for this stack.
    #[serde(default)]
    pub acknowledge: Option<Acknowledge>,
}

fn default_device_bytes() -> Size {
    Size(64 << 20)
}
fn default_recovery() -> Vec<String> {
    vec!["mount".to_owned()]
}

/// One step of a recovery procedure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RecoveryStep {
    /// The kernel's own mount; always the last step.
    Mount,
    /// A program and its words; the device is appended. Exit codes 0 and 1
    /// (e2fsck: errors corrected) go on to the next step.
    Command(Vec<String>),
}

/// A stack with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// The file system.
    pub filesystem: Filesystem,
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// Words after `mkfs.<filesystem> -q`, before the device.
    pub mkfs: Vec<String>,
    /// Mount options as requested.
    pub mount: String,
    /// The recovery procedure.
    pub recovery: Vec<RecoveryStep>,
}
