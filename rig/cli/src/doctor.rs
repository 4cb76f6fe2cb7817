//! `plugpull doctor`: what this machine can do, and the remedy for what it cannot.

use std::io::{self, Write};

use plugpull_model::verdict::Exit;
use serde::Serialize;

use crate::capability::{Capability, Machine, Probe};

/// One row of `doctor --json`.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    available: bool,
    /// What was found; only with `available`.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Why it is missing; only without `available`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    remedy: Option<String>,
}

impl Row {
    fn of(capability: Capability, probe: Probe) -> Row {
        let name = capability.name();
        match probe {
            Probe::Available { detail } => Row {
                name,
                available: true,
                detail: Some(detail),
                reason: None,
                remedy: None,
            },
            Probe::Missing { reason, remedy } => Row {
                name,
                available: false,
                detail: None,
                reason: Some(reason.to_string()),
                remedy: Some(remedy),
            },
        }
    }
}

/// Prints every capability with its detail or remedy and what follows for the stacks; with `json`
/// an array of objects instead.
///
/// The exit code is [`Exit::Upheld`] when the quickstart can run fully and [`Exit::Refused`] when
/// it cannot.
///
/// # Errors
/// When `out` cannot be written.
pub fn run(json: bool, out: &mut dyn Write) -> io::Result<Exit> {
    let mut text = Vec::new();
    let exit = report(&Machine::this(), json, &mut text)?;
    match out.write_all(&text).and_then(|()| out.flush()) {
        // A reader that closed the pipe has seen what it wanted.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e),
        _ => Ok(exit),
    }
}

fn report(machine: &Machine, json: bool, out: &mut dyn Write) -> io::Result<Exit> {
    let rows: Vec<Row> = Capability::ALL
        .into_iter()
        .map(|capability| Row::of(capability, machine.probe(capability)))
        .collect();
    let lacking: Vec<&str> = Capability::EXT4_STACK
        .map(Capability::name)
        .into_iter()
        .filter(|needed| rows.iter().any(|row| row.name == *needed && !row.available))
        .collect();
    if json {
        serde_json::to_writer_pretty(&mut *out, &rows)?;
        writeln!(out)?;
    } else {
        table(&rows, out)?;
        summary(&lacking, out)?;
    }
    out.flush()?;
    Ok(if lacking.is_empty() {
        Exit::Upheld
    } else {
        Exit::Refused
    })
}

fn table(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    for row in rows {
        let here = if row.available { "yes" } else { "no" };
        let name = row.name;
        let found = row.detail.as_ref().or(row.reason.as_ref());
        write!(
            out,
            "{name:<width$}  {here:<3}  {}",
            found.map_or("", |text| text)
        )?;
        match &row.remedy {
            Some(remedy) => writeln!(out, "; remedy: {remedy}")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn summary(lacking: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let needs = Capability::EXT4_STACK.map(Capability::name).join(", ");
    writeln!(out)?;
    writeln!(
        out,
        "Raw stacks (filesystem = \"none\") can run: they need none of these."
    )?;
    if lacking.is_empty() {
        writeln!(out, "ext4 stacks can run: {needs} are there.")?;
        writeln!(out, "The quickstart can run fully: `plugpull run`.")
    } else {
        let lacking = lacking.join(", ");
        writeln!(
            out,
            "ext4 stacks cannot run: they need {needs}; missing: {lacking}."
        )?;
        writeln!(
            out,
            "The quickstart cannot run fully; see the remedies above."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::tests::Tree;

    fn told(tree: &Tree, json: bool) -> (String, Exit) {
        let mut out = Vec::new();
        let exit = report(&tree.machine(), json, &mut out).expect("written");
        (String::from_utf8(out).expect("UTF-8"), exit)
    }

    #[test]
    fn an_able_machine_exits_0_and_an_empty_one_4() {
        assert_eq!(told(&Tree::able(), false).1, Exit::Upheld);
        assert_eq!(told(&Tree::new(), false).1, Exit::Refused);
        assert_eq!(told(&Tree::able(), true).1, Exit::Upheld);
        assert_eq!(told(&Tree::new(), true).1, Exit::Refused);
    }

    #[test]
    fn every_capability_has_a_row_and_every_missing_one_a_remedy() {
        insta::assert_snapshot!(told(&Tree::able(), false).0, @r#"
    root       yes  effective user 0 with CAP_SYS_ADMIN
    fuse       yes  /dev/fuse opens
    loop       yes  /dev/loop-control opens
    ext4       yes  /usr/sbin/mkfs.ext4
    xfs        no   the kernel has no xfs; remedy: modprobe xfs, or boot a kernel that has it
    btrfs      no   the kernel has no btrfs; remedy: modprobe btrfs, or boot a kernel that has it
    fio        no   fio not found; remedy: apt-get install fio
    uml        no   linux.uml not found; remedy: apt-get install user-mode-linux
    qemu       no   qemu-system-x86_64 not found; remedy: apt-get install qemu-system-x86
    dm-guest   no   no guest with dm-flakey and dm-log-writes (neither linux.uml nor qemu-system-x86_64 found); remedy: apt-get install user-mode-linux; or apt-get install qemu-system-x86 linux-image-amd64
    snmp       no   snmpset not found; remedy: apt-get install snmp snmpd
    ipmi       no   ipmitool not found; remedy: apt-get install ipmitool
    redfish    no   sushy-emulator not found; remedy: pip install sushy-tools (not a Debian package)
    fence      no   fence_apc_snmp not found; remedy: apt-get install fence-agents
    nut        no   upsd not found; remedy: apt-get install nut-server
    pdudaemon  no   pdudaemon not found; remedy: apt-get install pdudaemon
    chromium   no   chromium not found; remedy: apt-get install chromium

    Raw stacks (filesystem = "none") can run: they need none of these.
    ext4 stacks can run: root, fuse, loop, ext4 are there.
    The quickstart can run fully: `plugpull run`.
    "#);
        insta::assert_snapshot!(told(&Tree::new(), false).0, @r#"
    root       no   /proc/self/status does not tell the user; remedy: mount /proc (`mount -t proc proc /proc`)
    fuse       no   /dev/fuse does not open: No such file or directory; remedy: run as root on a machine with FUSE (`modprobe fuse`; in a container `--device /dev/fuse`)
    loop       no   /dev/loop-control does not open: No such file or directory; remedy: run as root on a machine with loop devices (`modprobe loop`)
    ext4       no   the kernel has no ext4; remedy: modprobe ext4, or boot a kernel that has it
    xfs        no   the kernel has no xfs; remedy: modprobe xfs, or boot a kernel that has it
    btrfs      no   the kernel has no btrfs; remedy: modprobe btrfs, or boot a kernel that has it
    fio        no   fio not found; remedy: apt-get install fio
    uml        no   linux.uml not found; remedy: apt-get install user-mode-linux
    qemu       no   qemu-system-x86_64 not found; remedy: apt-get install qemu-system-x86
    dm-guest   no   no guest with dm-flakey and dm-log-writes (neither linux.uml nor qemu-system-x86_64 found); remedy: apt-get install user-mode-linux; or apt-get install qemu-system-x86 linux-image-amd64
    snmp       no   snmpset not found; remedy: apt-get install snmp snmpd
    ipmi       no   ipmitool not found; remedy: apt-get install ipmitool
    redfish    no   sushy-emulator not found; remedy: pip install sushy-tools (not a Debian package)
    fence      no   fence_apc_snmp not found; remedy: apt-get install fence-agents
    nut        no   upsd not found; remedy: apt-get install nut-server
    pdudaemon  no   pdudaemon not found; remedy: apt-get install pdudaemon
    chromium   no   chromium not found; remedy: apt-get install chromium

    Raw stacks (filesystem = "none") can run: they need none of these.
    ext4 stacks cannot run: they need root, fuse, loop, ext4; missing: root, fuse, loop, ext4.
    The quickstart cannot run fully; see the remedies above.
    "#);
    }

    #[test]
    fn json_is_an_array_of_every_capability() {
        let (text, _) = told(&Tree::able(), true);
        let rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let rows = rows.as_array().expect("an array");
        assert_eq!(rows.len(), Capability::ALL.len());
        for (row, capability) in rows.iter().zip(Capability::ALL) {
            assert_eq!(row["name"], capability.name());
            let available = row["available"].as_bool().expect("a boolean");
            assert_eq!(row["detail"].is_string(), available);
            assert_eq!(row["reason"].is_string(), !available);
            assert_eq!(row["remedy"].is_string(), !available);
        }
    }
}
