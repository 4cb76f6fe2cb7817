//! What this machine can do: the capabilities that a backend or a test may need.
//!
//! `plugpull doctor` prints them all. Tests ask through [`require_or_skip`]: what is missing skips
//! the test, in words and counted, unless `PLUGPULL_REQUIRE` names it: then the test fails.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::scenario_file::nearest;
use crate::scenario_file::{ScenarioError, echo, words_of};

/// The environment variable that names the capabilities a test run may not skip.
pub const REQUIRE_VARIABLE: &str = "PLUGPULL_REQUIRE";
/// The environment variable that names the file to which each skip adds one line.
pub const SKIP_LOG_VARIABLE: &str = "PLUGPULL_SKIP_LOG";

/// Something that a machine has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Effective user 0 with `CAP_SYS_ADMIN`: mounts, loop devices.
    Root,
    /// FUSE: `/dev/fuse` opens for reading and writing, and the kernel knows the file system.
    Fuse,
    /// Loop devices: `/dev/loop-control` opens.
    Loop,
    /// The kernel's ext4 and its mkfs.
    Ext4,
    /// The kernel's XFS and its mkfs.
    Xfs,
    /// The kernel's btrfs and its mkfs.
    Btrfs,
    /// The load generator fio.
    Fio,
    /// User-Mode Linux.
    Uml,
    /// QEMU for x86-64.
    Qemu,
    /// A guest in which dm-flakey and dm-log-writes can be loaded: User-Mode Linux with both
    /// modules, or QEMU with a kernel under `/boot` whose modules (or built-ins) hold both.
    DmGuest,
    /// An SNMP agent and the client, to stand in for a PDU.
    Snmp,
    /// The IPMI client.
    Ipmi,
    /// The Redfish emulator.
    Redfish,
    /// The fence agent for APC PDUs.
    Fence,
    /// The UPS daemon of NUT.
    Nut,
    /// The PDU daemon.
    Pdudaemon,
    /// A browser, to look at the HTML report.
    Chromium,
}

impl Capability {
    /// Every capability, in the order in which `doctor` prints them.
    pub const ALL: [Capability; 17] = [
        Capability::Root,
        Capability::Fuse,
        Capability::Loop,
        Capability::Ext4,
        Capability::Xfs,
        Capability::Btrfs,
        Capability::Fio,
        Capability::Uml,
        Capability::Qemu,
        Capability::DmGuest,
        Capability::Snmp,
        Capability::Ipmi,
        Capability::Redfish,
        Capability::Fence,
        Capability::Nut,
        Capability::Pdudaemon,
        Capability::Chromium,
    ];

    /// What a stack on the kernel's ext4 and the simulated drive needs; a raw stack needs nothing.
    pub const EXT4_STACK: [Capability; 4] = [
        Capability::Root,
        Capability::Fuse,
        Capability::Loop,
        Capability::Ext4,
    ];

    /// The name in `doctor` and `PLUGPULL_REQUIRE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Capability::Root => "root",
            Capability::Fuse => "fuse",
            Capability::Loop => "loop",
            Capability::Ext4 => "ext4",
            Capability::Xfs => "xfs",
            Capability::Btrfs => "btrfs",
            Capability::Fio => "fio",
            Capability::Uml => "uml",
            Capability::Qemu => "qemu",
            Capability::DmGuest => "dm-guest",
            Capability::Snmp => "snmp",
            Capability::Ipmi => "ipmi",
            Capability::Redfish => "redfish",
            Capability::Fence => "fence",
            Capability::Nut => "nut",
            Capability::Pdudaemon => "pdudaemon",
            Capability::Chromium => "chromium",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Capability {
    type Err = ScenarioError;

    fn from_str(name: &str) -> Result<Self, ScenarioError> {
        let valid = Capability::ALL;
        valid
            .into_iter()
            .find(|capability| capability.name() == name)
            .ok_or_else(|| {
                let names = valid.map(Capability::name);
                let list = names.join(", ");
                ScenarioError::UnknownCapability {
                    name: echo(name),
                    hint: match nearest::close(name, &names) {
                        Some(meant) => format!("did you mean `{meant}`? Valid: {list}"),
                        None => format!("valid: {list}"),
                    },
                }
            })
    }
}

/// Reads what `PLUGPULL_REQUIRE` holds: names separated by commas.
///
/// # Errors
/// The first name that is no capability.
pub fn parse_required(text: &str) -> Result<BTreeSet<Capability>, ScenarioError> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::parse)
        .collect()
}

/// The capabilities that `PLUGPULL_REQUIRE` names; none when it is not set.
///
/// # Errors
/// The first name that is no capability.
pub fn required() -> Result<BTreeSet<Capability>, ScenarioError> {
    match env::var_os(REQUIRE_VARIABLE) {
        None => Ok(BTreeSet::new()),
        Some(text) => parse_required(&text.to_string_lossy()),
    }
}

/// Why a capability is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingReason {
    /// The effective user is not 0.
    NotRoot {
        /// Who it is.
        euid: u32,
    },
    /// User 0 without `CAP_SYS_ADMIN`: a container.
    NoSysAdmin,
    /// `/proc/self/status` does not say who runs this.
    UnknownIdentity,
    /// A device node does not open.
    CannotOpen {
        /// The device.
        device: &'static str,
        /// The words of the system.
        error: String,
    },
    /// The kernel neither has the file system nor a module to load for it.
    NotInKernel {
        /// The file system.
        filesystem: &'static str,
    },
    /// A program is on none of the paths.
    NoProgram {
        /// The program.
        program: &'static str,
    },
    /// No guest can be started, or none has a kernel with both dm targets.
    NoDmGuest {
        /// What was found, if anything.
        found: &'static str,
    },
}

impl fmt::Display for MissingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingReason::NotRoot { euid } => write!(f, "the effective user is {euid}, not 0"),
            MissingReason::NoSysAdmin => f.write_str("user 0, but without CAP_SYS_ADMIN"),
            MissingReason::UnknownIdentity => {
                f.write_str("/proc/self/status does not tell the user")
            }
            MissingReason::CannotOpen { device, error } => {
                write!(f, "{device} does not open: {error}")
            }
            MissingReason::NotInKernel { filesystem } => {
                write!(f, "the kernel has no {filesystem}")
            }
            MissingReason::NoProgram { program } => write!(f, "{program} not found"),
            MissingReason::NoDmGuest { found } => {
                write!(f, "no guest with dm-flakey and dm-log-writes ({found})")
            }
        }
    }
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It is there.
    Available {
        /// What was found.
        detail: String,
    },
    /// It is not.
    Missing {
        /// Why.
        reason: MissingReason,
        /// The Debian package to install, or what else to do.
        remedy: String,
    },
}

impl Probe {
    /// Whether it is there.
    #[must_use]
    pub fn is_available(&self) -> bool {
        matches!(self, Probe::Available { .. })
    }
}

fn available(detail: impl Into<String>) -> Probe {
    Probe::Available {
        detail: detail.into(),
    }
}

fn missing(reason: MissingReason, remedy: impl Into<String>) -> Probe {
    Probe::Missing {
        reason,
        remedy: remedy.into(),
    }
}

/// Probes this machine.
#[must_use]
pub fn probe(capability: Capability) -> Probe {
    Machine::this().probe(capability)
}

/// Directories that hold administrators' programs and are not on every user's `PATH`.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The machine that is probed: this one, or a tree in a test.
pub(crate) struct Machine {
    /// What `/` is.
    root: PathBuf,
    /// Where programs are looked for, as absolute paths under `root`.
    path: Vec<PathBuf>,
}

impl Machine {
    /// The machine this runs on.
    pub(crate) fn this() -> Machine {
        let listed = env::var_os("PATH").unwrap_or_default();
        Machine {
            root: PathBuf::from("/"),
            // An empty or relative entry would find a program in the current directory.
            path: env::split_paths(&listed)
                .filter(|directory| directory.is_absolute())
                .chain(SYSTEM_DIRECTORIES.map(PathBuf::from))
                .collect(),
        }
    }

    fn at(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.root
            .join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// Probes one capability. Nothing is started, mounted or changed.
    pub(crate) fn probe(&self, capability: Capability) -> Probe {
        match capability {
            Capability::Root => self.probe_root(),
            Capability::Fuse => self.probe_fuse(),
            Capability::Loop => match self.open("/dev/loop-control") {
                Ok(()) => available("/dev/loop-control opens"),
                Err(reason) => missing(
                    reason,
                    "run as root on a machine with loop devices (`modprobe loop`)",
                ),
            },
            Capability::Ext4 => self.probe_filesystem("ext4", "mkfs.ext4", "e2fsprogs"),
            Capability::Xfs => self.probe_filesystem("xfs", "mkfs.xfs", "xfsprogs"),
            Capability::Btrfs => self.probe_filesystem("btrfs", "mkfs.btrfs", "btrfs-progs"),
            Capability::Fio => self.probe_programs(&["fio"], &install("fio")),
            Capability::Uml => self.probe_programs(&["linux.uml"], &install("user-mode-linux")),
            Capability::Qemu => {
                self.probe_programs(&["qemu-system-x86_64"], &install("qemu-system-x86"))
            }
            Capability::DmGuest => self.probe_dm_guest(),
            Capability::Snmp => self.probe_programs(&["snmpset", "snmpd"], &install("snmp snmpd")),
            Capability::Ipmi => self.probe_programs(&["ipmitool"], &install("ipmitool")),
            Capability::Redfish => self.probe_programs(
                &["sushy-emulator"],
                "pip install sushy-tools (not a Debian package)",
            ),
            Capability::Fence => self.probe_programs(&["fence_apc_snmp"], &install("fence-agents")),
            Capability::Nut => self.probe_programs(&["upsd"], &install("nut-server")),
            Capability::Pdudaemon => self.probe_programs(&["pdudaemon"], &install("pdudaemon")),
            Capability::Chromium => self.probe_programs(&["chromium"], &install("chromium")),
        }
    }

    fn probe_root(&self) -> Probe {
        const CAP_SYS_ADMIN: u32 = 21;
        let status = fs::read_to_string(self.at("/proc/self/status")).unwrap_or_default();
        let field = |name: &str, index: usize| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().nth(index)
        };
        // "Uid: real effective saved file-system"; "CapEff: hexadecimal".
        let euid = field("Uid:", 1).and_then(|text| text.parse::<u32>().ok());
        let effective = field("CapEff:", 0).and_then(|text| u64::from_str_radix(text, 16).ok());
        match (euid, effective) {
            (Some(0), Some(effective)) if effective & (1 << CAP_SYS_ADMIN) != 0 => {
                available("effective user 0 with CAP_SYS_ADMIN")
            }
            (Some(0), Some(_)) => missing(
                MissingReason::NoSysAdmin,
                "give the container CAP_SYS_ADMIN (for example `--privileged`)",
            ),
            (Some(euid @ 1..), _) => {
                missing(MissingReason::NotRoot { euid }, "run as root (`sudo`)")
            }
            _ => missing(
                MissingReason::UnknownIdentity,
                "mount /proc (`mount -t proc proc /proc`)",
            ),
        }
    }

    fn probe_fuse(&self) -> Probe {
        // Opening the device first lets the kernel load the module, which registers the name.
        if let Err(reason) = self.open("/dev/fuse") {
            return missing(
                reason,
                "run as root on a machine with FUSE (`modprobe fuse`; in a container `--device /dev/fuse`)",
            );
        }
        if self.registered("fuse") {
            available("/dev/fuse opens")
        } else {
            missing(
                MissingReason::NotInKernel { filesystem: "fuse" },
                "modprobe fuse",
            )
        }
    }

    fn open(&self, device: &'static str) -> Result<(), MissingReason> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.at(device))
            .map(drop)
            .map_err(|error| MissingReason::CannotOpen {
                device,
                error: words_of(&error),
            })
    }

    /// Whether `/proc/filesystems` names it.
    fn registered(&self, filesystem: &str) -> bool {
        fs::read_to_string(self.at("/proc/filesystems"))
            .unwrap_or_default()
            .lines()
            .any(|line| line.split_whitespace().next_back() == Some(filesystem))
    }

    fn probe_filesystem(
        &self,
        filesystem: &'static str,
        mkfs: &'static str,
        package: &str,
    ) -> Probe {
        let in_kernel = if self.registered(filesystem) {
            ""
        } else if self.loadable(filesystem) {
            ", module loaded by the first mount"
        } else {
            return missing(
                MissingReason::NotInKernel { filesystem },
                format!("modprobe {filesystem}, or boot a kernel that has it"),
            );
        };
        match self.program(mkfs) {
            Some(found) => available(format!("{}{in_kernel}", found.display())),
            None => missing(MissingReason::NoProgram { program: mkfs }, install(package)),
        }
    }

    /// Whether the running kernel has a module file of this name: mounting loads it.
    fn loadable(&self, module: &str) -> bool {
        let Ok(release) = fs::read_to_string(self.at("/proc/sys/kernel/osrelease")) else {
            return false;
        };
        let modules = self.at("/lib/modules").join(release.trim());
        lists_module(&modules.join("modules.dep"), module)
            || lists_module(&modules.join("modules.builtin"), module)
    }

    fn probe_programs(&self, programs: &[&'static str], remedy: &str) -> Probe {
        let mut found = Vec::new();
        for &program in programs {
            match self.program(program) {
                Some(path) => found.push(path.display().to_string()),
                None => return missing(MissingReason::NoProgram { program }, remedy),
            }
        }
        available(found.join(", "))
    }

    /// The first executable file of this name on the path.
    fn program(&self, name: &str) -> Option<PathBuf> {
        self.path
            .iter()
            .map(|directory| directory.join(name))
            .find(|candidate| {
                fs::metadata(self.at(candidate)).is_ok_and(|metadata| {
                    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
                })
            })
    }

    fn probe_dm_guest(&self) -> Probe {
        let uml = self.program("linux.uml");
        let qemu = self.program("qemu-system-x86_64");
        if let Some(program) = &uml
            && let Some(release) = self.releases("/usr/lib/uml/modules").into_iter().next()
        {
            return available(format!("{}, modules of {release}", program.display()));
        }
        if let Some(program) = &qemu {
            let kernel = self
                .releases("/lib/modules")
                .into_iter()
                .map(|release| format!("/boot/vmlinuz-{release}"))
                .find(|kernel| fs::File::open(self.at(kernel)).is_ok());
            if let Some(kernel) = kernel {
                return available(format!("{}, {kernel}", program.display()));
            }
        }
        let found = match (uml.is_some(), qemu.is_some()) {
            (false, false) => "neither linux.uml nor qemu-system-x86_64 found",
            (true, _) => "linux.uml is there, its modules are not",
            (false, true) => {
                "qemu-system-x86_64 is there, a readable kernel in /boot with its modules is not"
            }
        };
        missing(
            MissingReason::NoDmGuest { found },
            format!(
                "{}; or {}",
                install("user-mode-linux"),
                install("qemu-system-x86 linux-image-amd64")
            ),
        )
    }

    /// The kernel releases under `modules` that have both dm targets, the newest name first.
    fn releases(&self, modules: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(modules)) else {
            return Vec::new();
        };
        let mut releases: Vec<String> = entries
            .filter_map(Result::ok)
            .filter(|entry| {
                ["dm-flakey", "dm-log-writes"]
                    .into_iter()
                    .all(|target| has_target(&entry.path(), target))
            })
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        releases.sort_unstable_by(|a, b| b.cmp(a));
        releases
    }
}

/// Whether the modules of one kernel release hold this dm target.
fn has_target(release: &Path, target: &str) -> bool {
    let file = format!("{target}.ko");
    let as_module = fs::read_dir(release.join("kernel/drivers/md")).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_string_lossy().starts_with(&file))
    });
    as_module || lists_module(&release.join("modules.builtin"), target)
}

/// Whether a module list (`modules.dep`, `modules.builtin`) names the module. A line begins with
/// the module's path, perhaps compressed, and may go on with a colon and what it needs.
fn lists_module(list: &Path, module: &str) -> bool {
    fs::read_to_string(list)
        .unwrap_or_default()
        .lines()
        .any(|line| {
            let path = line.split(':').next().unwrap_or_default();
            let file = path.rsplit('/').next().unwrap_or_default();
            file.strip_prefix(module)
                .is_some_and(|rest| rest == ".ko" || rest.starts_with(".ko."))
        })
}

fn install(packages: &str) -> String {
    format!("apt-get install {packages}")
}

/// A test that did not run, and why. It has been printed and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The first capability that is missing.
    pub capability: Capability,
    /// Why it is missing.
    pub reason: MissingReason,
}

/// For tests: `Ok` when the machine has every capability in `caps`. Otherwise prints
/// `skipped: <test>: <capability>: <reason>` on stderr, adds the same line to the file that
/// `PLUGPULL_SKIP_LOG` names, and returns the [`Skip`].
///
/// # Errors
/// When something is missing and `PLUGPULL_REQUIRE` does not name it: the test returns.
///
/// # Panics
/// When something is missing that `PLUGPULL_REQUIRE` names, when that variable names no
/// capability, and when a skip cannot be counted: the test fails.
pub fn require_or_skip(caps: &[Capability], test: &str) -> Result<(), Skip> {
    let required = match required() {
        Ok(required) => required,
        Err(error) => panic!("{error}"),
    };
    match decide(&Machine::this(), caps, test, &required) {
        Decision::Run => Ok(()),
        Decision::Fail(why) => panic!("{why}"),
        Decision::Skip { skip, line } => {
            eprintln!("{line}");
            if let Some(log) = env::var_os(SKIP_LOG_VARIABLE)
                && let Err(error) = count_skip(Path::new(&log), &line)
            {
                panic!("{SKIP_LOG_VARIABLE}: cannot count a skip in {log:?}: {error}");
            }
            Err(skip)
        }
    }
}

enum Decision {
    Run,
    Skip { skip: Skip, line: String },
    Fail(String),
}

/// What becomes of a test. Something required that is missing fails it, whatever else is missing.
fn decide(
    machine: &Machine,
    caps: &[Capability],
    test: &str,
    required: &BTreeSet<Capability>,
) -> Decision {
    let mut first = None;
    for &capability in caps {
        let Probe::Missing { reason, remedy } = machine.probe(capability) else {
            continue;
        };
        if required.contains(&capability) {
            return Decision::Fail(format!(
                "{test}: {capability} is required by {REQUIRE_VARIABLE}: {reason}; {remedy}"
            ));
        }
        first.get_or_insert(Skip { capability, reason });
    }
    match first {
        None => Decision::Run,
        Some(skip) => Decision::Skip {
            line: format!("skipped: {test}: {}: {}", skip.capability, skip.reason),
            skip,
        },
    }
}

/// One line, in one write: tests run in parallel, in several processes.
fn count_skip(log: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(log)?;
    file.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    const ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";

    /// A machine in a temporary directory.
    pub(crate) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(crate) fn new() -> Tree {
            Tree(tempfile::tempdir().expect("a directory"))
        }

        /// A machine on which the quickstart runs.
        pub(crate) fn able() -> Tree {
            let tree = Tree::new();
            tree.file("/proc/self/status", ROOT);
            tree.file("/proc/filesystems", "nodev\tproc\n\text4\nnodev\tfuse\n");
            tree.file("/dev/fuse", "");
            tree.file("/dev/loop-control", "");
            tree.program("/usr/sbin/mkfs.ext4");
            tree
        }

        pub(crate) fn file(&self, path: &str, text: &str) {
            self.write(path, text, 0o644);
        }

        fn program(&self, path: &str) {
            self.write(path, "", 0o755);
        }

        fn write(&self, path: &str, text: &str, mode: u32) {
            let path = self.machine().at(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(mode)
                .open(path)
                .expect("a file");
            file.write_all(text.as_bytes()).expect("written");
        }

        pub(crate) fn machine(&self) -> Machine {
            Machine {
                root: self.0.path().to_owned(),
                path: vec!["/usr/bin".into(), "/usr/sbin".into()],
            }
        }

        fn probe(&self, capability: Capability) -> Probe {
            self.machine().probe(capability)
        }

        fn reason(&self, capability: Capability) -> MissingReason {
            match self.probe(capability) {
                Probe::Missing { reason, .. } => reason,
                Probe::Available { detail } => panic!("{capability} is there: {detail}"),
            }
        }
    }

    #[test]
    fn the_names_are_those_of_the_interface() {
        assert_eq!(
            Capability::ALL.map(Capability::name).join(" "),
            "root fuse loop ext4 xfs btrfs fio uml qemu dm-guest snmp ipmi redfish fence nut \
             pdudaemon chromium"
        );
        for capability in Capability::ALL {
            assert_eq!(
                parse_required(capability.name()).expect("valid"),
                [capability].into()
            );
        }
    }

    #[test]
    fn required_names_are_separated_by_commas() {
        let set = parse_required(" root, fuse,,ext4 ,").expect("valid");
        assert_eq!(
            set,
            [Capability::Root, Capability::Fuse, Capability::Ext4].into()
        );
        assert!(parse_required("").expect("valid").is_empty());
    }

    #[test]
    fn an_unknown_required_name_names_the_valid_ones_and_is_a_usage_error() {
        let error = parse_required("root,dmguest").expect_err("unknown");
        insta::assert_snapshot!(error, @"PLUGPULL_REQUIRE: unknown capability `dmguest`; did you mean `dm-guest`? Valid: root, fuse, loop, ext4, xfs, btrfs, fio, uml, qemu, dm-guest, snmp, ipmi, redfish, fence, nut, pdudaemon, chromium");
        assert_eq!(error.exit() as u8, 2);
        assert!(parse_required("Root").is_err());
    }

    #[test]
    fn an_empty_machine_has_nothing_and_every_remedy_is_named() {
        let tree = Tree::new();
        for capability in Capability::ALL {
            match tree.probe(capability) {
                Probe::Missing { remedy, .. } => assert!(!remedy.is_empty(), "{capability}"),
                Probe::Available { detail } => panic!("{capability} is there: {detail}"),
            }
        }
    }

    #[test]
    fn an_able_machine_has_what_an_ext4_stack_needs() {
        let tree = Tree::able();
        for capability in Capability::EXT4_STACK {
            assert!(tree.probe(capability).is_available(), "{capability}");
        }
    }

    #[test]
    fn root_without_sys_admin_is_not_root() {
        let tree = Tree::new();
        tree.file(
            "/proc/self/status",
            "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n",
        );
        assert_eq!(tree.reason(Capability::Root), MissingReason::NoSysAdmin);
        tree.file(
            "/proc/self/status",
            "Uid:\t0\t1000\t0\t0\nCapEff:\t000001ffffffffff\n",
        );
        assert_eq!(
            tree.reason(Capability::Root),
            MissingReason::NotRoot { euid: 1000 }
        );
    }

    #[test]
    fn a_file_system_needs_the_kernel_and_its_mkfs() {
        let tree = Tree::able();
        assert_eq!(
            tree.reason(Capability::Xfs),
            MissingReason::NotInKernel { filesystem: "xfs" }
        );
        tree.file("/proc/filesystems", "\text4\n\txfs\n");
        assert_eq!(
            tree.reason(Capability::Xfs),
            MissingReason::NoProgram {
                program: "mkfs.xfs"
            }
        );
        // Not executable: not a program.
        tree.file("/usr/sbin/mkfs.xfs", "");
        assert!(!tree.probe(Capability::Xfs).is_available());
        tree.program("/usr/bin/mkfs.xfs");
        assert!(tree.probe(Capability::Xfs).is_available());
    }

    #[test]
    fn a_module_that_a_mount_would_load_counts() {
        let tree = Tree::able();
        tree.program("/usr/sbin/mkfs.btrfs");
        assert!(!tree.probe(Capability::Btrfs).is_available());
        tree.file("/proc/sys/kernel/osrelease", "6.1.0\n");
        tree.file(
            "/lib/modules/6.1.0/modules.dep",
            "kernel/fs/notbtrfs.ko:\nkernel/fs/btrfs/btrfs.ko.xz: kernel/lib/raid6/raid6_pq.ko.xz\n",
        );
        assert!(tree.probe(Capability::Btrfs).is_available());
        tree.file(
            "/lib/modules/6.1.0/modules.dep",
            "kernel/fs/x.ko: kernel/btrfs.ko\n",
        );
        assert!(!tree.probe(Capability::Btrfs).is_available());
    }

    #[test]
    fn an_snmp_lab_needs_the_agent_and_the_client() {
        let tree = Tree::new();
        tree.program("/usr/bin/snmpset");
        assert_eq!(
            tree.reason(Capability::Snmp),
            MissingReason::NoProgram { program: "snmpd" }
        );
        tree.program("/usr/sbin/snmpd");
        assert!(tree.probe(Capability::Snmp).is_available());
    }

    #[test]
    fn a_dm_guest_is_user_mode_linux_with_both_targets_or_qemu_with_a_kernel() {
        let uml = Tree::new();
        uml.program("/usr/bin/linux.uml");
        let md = "/usr/lib/uml/modules/6.1.176/kernel/drivers/md";
        uml.file(&format!("{md}/dm-flakey.ko"), "");
        assert!(!uml.probe(Capability::DmGuest).is_available());
        uml.file(&format!("{md}/dm-log-writes.ko"), "");
        assert!(uml.probe(Capability::DmGuest).is_available());

        let qemu = Tree::new();
        qemu.program("/usr/bin/qemu-system-x86_64");
        qemu.file(
            "/lib/modules/6.1.0-42/modules.builtin",
            "kernel/drivers/md/dm-flakey.ko\nkernel/drivers/md/dm-log-writes.ko\n",
        );
        assert!(!qemu.probe(Capability::DmGuest).is_available());
        qemu.file("/boot/vmlinuz-6.1.0-42", "");
        assert!(qemu.probe(Capability::DmGuest).is_available());
    }

    #[test]
    fn a_missing_capability_skips_and_a_required_one_fails() {
        let tree = Tree::able();
        let machine = tree.machine();
        let caps = [Capability::Root, Capability::Fio, Capability::Xfs];
        let Decision::Skip { skip, line } = decide(&machine, &caps, "a_test", &BTreeSet::new())
        else {
            panic!("not skipped");
        };
        assert_eq!(skip.capability, Capability::Fio);
        insta::assert_snapshot!(line, @"skipped: a_test: fio: fio not found");
        // Missing, required and behind one that is only missing: fails all the same.
        let Decision::Fail(why) = decide(&machine, &caps, "a_test", &[Capability::Xfs].into())
        else {
            panic!("not failed");
        };
        insta::assert_snapshot!(why, @"a_test: xfs is required by PLUGPULL_REQUIRE: the kernel has no xfs; modprobe xfs, or boot a kernel that has it");
        assert!(matches!(
            decide(
                &machine,
                &[Capability::Root],
                "a_test",
                &[Capability::Xfs].into()
            ),
            Decision::Run
        ));
    }

    #[test]
    fn each_skip_adds_one_line_to_the_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("skips");
        count_skip(&log, "skipped: a: fio: fio not found").expect("counted");
        count_skip(&log, "skipped: b: fio: fio not found").expect("counted");
        let lines = fs::read_to_string(&log).expect("readable");
        assert_eq!(lines.lines().count(), 2);
        assert!(count_skip(&directory.path().join("no/skips"), "x").is_err());
    }
}
