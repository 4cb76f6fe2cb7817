//! Whatever is wrong with the input or the machine: one line that names the
//! place and the remedy, the right exit code, nothing left, nothing lost.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use common::{
    EXT4, Ended, Folder, LONG, PROGRAM, Running, Scenario, VOLATILE, cell, command, count, events,
    ext4, folder, json, plugpull, run, start, until, verdicts,
};
use nix::sys::signal::Signal;
use plugpull::capability::{Capability, require_or_skip};
use serde_json::Value;

const NOBODY: u32 = 65534;
const RAW: &str = "filesystem = \"none\"\ndevice_bytes = \"4 MiB\"\nacknowledge = \"none\"\n";
const WORKLOAD: &str = "records_per_writer = 4\nwriters = 1";

/// A scenario that violates within milliseconds and needs no root.
fn raw() -> Scenario {
    let mut scenario = Scenario::honest(WORKLOAD, &[("volatile", VOLATILE)], "");
    scenario.stacks = vec![("raw".to_owned(), RAW.to_owned())];
    scenario
}

/// Two ext4 cells that take a few seconds: the first is violated, the second upheld.
fn slow() -> Scenario {
    let mut scenario = Scenario::honest(
        "records_per_writer = 8",
        &[("volatile", VOLATILE)],
        "images_per_cell = 250\nsampled_states_per_cut = 12\nuse_every = 64",
    );
    scenario
        .stacks
        .insert(0, ("ext4-nobarrier".to_owned(), ext4("barrier=0")));
    scenario
}

/// One ext4 cell that takes a moment and is upheld.
fn quick() -> Scenario {
    Scenario::honest(
        WORKLOAD,
        &[("volatile", VOLATILE)],
        "images_per_cell = 100\nuse_every = 64",
    )
}

fn arguments<'a>(words: &[&'a str], paths: &[&'a Path]) -> Vec<&'a std::ffi::OsStr> {
    words
        .iter()
        .map(|word| (*word).as_ref())
        .chain(paths.iter().map(|path| path.as_os_str()))
        .collect()
}

/// `plugpull run SCENARIO --out OUT`.
fn run_scenario(scenario: &Path, out: &Path) -> Ended {
    plugpull(&[
        "run".as_ref(),
        scenario.as_os_str(),
        "--out".as_ref(),
        out.as_os_str(),
    ])
}

// ---- Scenarios and command lines ----------------------------------------------

#[test]
fn a_wrong_scenario_is_one_line_that_names_its_place() {
    let good = raw().text();
    let folder = folder();
    let cases: [(&str, &str, &str, &[&str]); 6] = [
        ("unknown key", "cache =", "cahce =", &["cahce", "cache"]),
        ("wrong unit", "\"4 MiB\"", "\"4 MB\"", &["4 MB", "MiB"]),
        ("negative size", "\"4 MiB\"", "-4", &["-4"]),
        (
            "absurd size",
            "\"4 MiB\"",
            "\"9999999 TiB\"",
            &["device_bytes"],
        ),
        (
            "two stacks of one name",
            "[drives.volatile]",
            "[stacks.raw]\nfilesystem = \"none\"\n[drives.volatile]",
            &["raw"],
        ),
        (
            "a stack that is not there",
            "stacks = [\"raw\"]",
            "stacks = [\"rwa\"]",
            &["rwa", "raw"],
        ),
    ];
    for (what, from, to, words) in cases {
        assert!(good.contains(from), "{what}");
        let path = folder.path().join("bad.toml");
        fs::write(&path, good.replacen(from, to, 1)).expect("written");
        let out = folder.path().join("out");
        let ended = run_scenario(&path, &out);
        let line = ended.exits(2).one_line();
        assert!(line.contains("bad.toml:"), "{what}: file and line: {line}");
        for word in words {
            assert!(line.contains(word), "{what}: {word} in {line}");
        }
        assert_eq!(ended.stdout, "", "{what}");
        assert!(!out.exists(), "{what}: nothing was made");
    }
}

#[test]
fn a_scenario_that_is_not_there_or_not_text_is_named() {
    let folder = folder();
    let missing = folder.path().join("missing.toml");
    let ended = run_scenario(&missing, &folder.path().join("out"));
    assert!(ended.exits(2).one_line().contains("missing.toml"));
    let ended = run_scenario(folder.path(), &folder.path().join("out"));
    let name = folder.path().to_string_lossy().into_owned();
    assert!(ended.exits(2).one_line().contains(&name));
    let binary = folder.path().join("binary.toml");
    fs::write(&binary, [0xff, 0xfe, 0, 1]).expect("written");
    let ended = run_scenario(&binary, &folder.path().join("out"));
    assert!(ended.exits(2).one_line().contains("binary.toml"));
}

#[test]
fn a_pattern_that_matches_no_cell_tells_which_there_are() {
    let ended = plugpull(&["run", "--cell", "xfs-*"]);
    let line = ended.exits(2).one_line();
    assert!(
        line.contains("xfs-*") && line.contains("ext4-barrier@volatile"),
        "{line}"
    );
    let ended = plugpull(&["plan", "--cell", "*@lying"]);
    assert!(ended.exits(2).one_line().contains("control"));
}

#[test]
fn a_wrong_word_on_the_command_line_exits_2() {
    let cases: [&[&str]; 6] = [
        &["run", "--jobs", "many"],
        &["run", "--seed", "-1"],
        &["run", "--resume", "x", "--out", "y"],
        &["nosuch"],
        &["replay", "x"],
        &[],
    ];
    for words in cases {
        let ended = plugpull(words);
        ended.exits(2);
        assert!(!ended.stderr.is_empty(), "{words:?}");
    }
}

// ---- Run directories ----------------------------------------------------------

#[test]
fn an_out_folder_that_holds_a_run_is_not_touched() {
    let folder = folder();
    let scenario = raw().write(folder.path());
    let out = folder.path().join("run");
    run_scenario(&scenario, &out).exits(1);
    let before = fs::read(out.join("manifest.json")).expect("readable");
    let second = run_scenario(&scenario, &out);
    let line = second.exits(2).one_line();
    assert!(
        line.contains(&*out.to_string_lossy()) && line.contains("--resume"),
        "{line}"
    );
    assert_eq!(
        before,
        fs::read(out.join("manifest.json")).expect("readable")
    );
}

#[test]
fn an_out_that_cannot_be_made_is_named() {
    let folder = folder();
    let scenario = raw().write(folder.path());
    let ended = run_scenario(&scenario, &scenario.join("under-a-file"));
    assert!(ended.exits(5).one_line().contains("under-a-file"));
    ended.leaves_nothing();
}

#[test]
fn a_folder_with_spaces_and_quotes_is_reproduced_too() {
    let folder = folder();
    let scenario = raw().write(folder.path());
    let out = folder.path().join("it's a run");
    let ended = run_scenario(&scenario, &out);
    ended.exits(1);
    let report = json(&out.join("report.json"));
    let line = report["cells"][0]["first_finding"]["reproduce"]
        .as_str()
        .expect("a command");
    let bin = Path::new(PROGRAM).parent().expect("a folder").display();
    let again = run(Command::new("sh")
        .args(["-c", line])
        .env("PATH", format!("{bin}:/usr/bin:/bin")));
    assert!(
        again.exits(1).stdout.contains("judged again: lost"),
        "{}",
        again.stdout
    );
}

#[test]
fn an_unknown_finding_tells_what_they_are_called() {
    let folder = folder();
    let out = finished(&folder);
    let ended = plugpull(&arguments(&["replay"], &[&out, Path::new("nosuch#1")]));
    let line = ended.exits(2).one_line();
    assert!(
        line.contains("nosuch#1") && line.contains("raw@volatile#1"),
        "{line}"
    );
}

#[test]
fn a_folder_that_is_no_run_is_named() {
    let folder = folder();
    for words in [&["replay"][..], &["run", "--resume"]] {
        let mut all = arguments(words, &[folder.path()]);
        if words == ["replay"] {
            all.push("raw@volatile#1".as_ref());
        }
        let ended = plugpull(&all);
        assert!(ended.exits(2).one_line().contains("plan.json"), "{words:?}");
    }
}

/// A finished run of [`raw`] in a folder.
fn finished(folder: &Folder) -> PathBuf {
    let scenario = raw().write(folder.path());
    let out = folder.path().join("run");
    run_scenario(&scenario, &out).exits(1);
    out
}

/// The file of a run directory of [`raw`].
fn file_of(out: &Path, name: &str) -> PathBuf {
    match name {
        "plan.json" | "events.jsonl" => out.join(name),
        _ => out.join("cells/raw@volatile/1").join(name),
    }
}

/// Lengths to cut a file of `length` bytes to.
fn lengths(length: u64) -> Vec<u64> {
    let mut all = vec![
        0,
        1,
        7,
        63,
        64,
        65,
        length / 3,
        length / 2,
        length - 2,
        length - 1,
    ];
    all.retain(|cut| *cut < length);
    all.dedup();
    all
}

/// A command on a damaged run directory either does its job (the damage did
/// not matter) or says in one line which file is damaged.
#[track_caller]
fn copes(ended: &Ended, file: &str, context: &str, fine: &[i32]) {
    ended.is_calm();
    let code = ended
        .code
        .unwrap_or_else(|| panic!("{context}: a signal: {}", ended.stderr));
    if fine.contains(&code) {
        return;
    }
    assert_eq!(code, 2, "{context}: {} {}", ended.stdout, ended.stderr);
    let line = ended.one_line();
    assert!(line.contains(file), "{context}: {file} in {line}");
}

#[test]
fn a_truncated_run_directory_is_never_a_panic_for_replay() {
    let folder = folder();
    let out = finished(&folder);
    for name in [
        "plan.json",
        "events.jsonl",
        "cut.json",
        "writelog.idx",
        "writelog",
        "ledger",
    ] {
        let path = file_of(&out, name);
        let whole = fs::read(&path).expect("readable");
        for length in lengths(whole.len() as u64) {
            let kept = usize::try_from(length).expect("short");
            fs::write(&path, &whole[..kept]).expect("written");
            let ended = plugpull(&arguments(
                &["replay"],
                &[&out, Path::new("raw@volatile#1")],
            ));
            let context = format!("replay, {name} cut to {length}");
            // A ledger that lost its tail may weaken a verdict; events that
            // lost the finding do not know its id.
            let named = if name == "events.jsonl" { "" } else { name };
            copes(&ended, named, &context, &[0, 1]);
        }
        fs::remove_file(&path).expect("removed");
        let ended = plugpull(&arguments(
            &["replay"],
            &[&out, Path::new("raw@volatile#1")],
        ));
        copes(&ended, name, &format!("replay without {name}"), &[]);
        fs::write(&path, &whole).expect("written");
    }
    plugpull(&arguments(
        &["replay"],
        &[&out, Path::new("raw@volatile#1")],
    ))
    .exits(1);
}

#[test]
fn a_truncated_run_directory_is_never_a_panic_for_resume() {
    let folder = folder();
    let out = finished(&folder);
    // Back to the moment after the recording, as a SIGKILL leaves it.
    let name = out.join("events.jsonl");
    let text = fs::read_to_string(&name).expect("readable");
    let mut kept: String = text
        .lines()
        .take_while(|line| !line.starts_with("{\"recorded\""))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&name, &kept).expect("written");
    let whole: Vec<(PathBuf, Vec<u8>)> = [
        "plan.json",
        "events.jsonl",
        "cut.json",
        "writelog.idx",
        "writelog",
        "ledger",
    ]
    .iter()
    .map(|name| file_of(&out, name))
    .map(|path| (path.clone(), fs::read(path).expect("readable")))
    .collect();
    let restore = || {
        for (path, bytes) in &whole {
            fs::write(path, bytes).expect("written");
        }
    };
    let resume = || plugpull(&arguments(&["run", "--resume"], &[&out]));
    for (path, bytes) in &whole {
        let file = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        for length in lengths(bytes.len() as u64) {
            let cut = usize::try_from(length).expect("short");
            fs::write(path, &bytes[..cut]).expect("written");
            let context = format!("resume, {file} cut to {length}");
            copes(&resume(), &file, &context, &[0, 1, 3]);
            restore();
        }
    }
    resume().exits(1);
    // Garbage in the middle is not what a killed run leaves.
    kept.insert_str(0, "garbage\n");
    fs::write(&name, &kept).expect("written");
    copes(&resume(), "events.jsonl", "garbage", &[]);
}

#[test]
fn a_run_directory_of_a_later_version_is_refused_in_words() {
    let folder = folder();
    let out = finished(&folder);
    let path = out.join("plan.json");
    let text = fs::read_to_string(&path).expect("readable");
    let later = text
        .replacen("\"schema\": 1", "\"schema\": 99", 1)
        .replacen("\"schema\":1", "\"schema\":99", 1);
    assert_ne!(text, later);
    fs::write(&path, later).expect("written");
    let ended = plugpull(&arguments(&["run", "--resume"], &[&out]));
    let line = ended.exits(2).one_line();
    assert!(line.contains("plan.json") && line.contains("99"), "{line}");
}

// ---- What the machine lacks ---------------------------------------------------

/// Runs a shell line in a mount namespace of its own. `$PLUGPULL` is the binary.
fn in_namespace(script: &str, folder: &Path) -> Ended {
    run(&mut namespace(script, folder))
}

fn namespace(script: &str, folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-e", "-c", script])
        .env("PLUGPULL", PROGRAM)
        .env("FOLDER", folder);
    command
}

#[test]
fn without_mkfs_ext4_cells_are_refused_and_the_package_is_named() {
    if require_or_skip(
        EXT4,
        "without_mkfs_ext4_cells_are_refused_and_the_package_is_named",
    )
    .is_err()
    {
        return;
    }
    let folder = folder();
    let ended = in_namespace(
        "mount --bind /dev/null \"$(readlink -f /usr/sbin/mkfs.ext4)\"\n\
         exec \"$PLUGPULL\" run --out \"$FOLDER/run\"",
        folder.path(),
    );
    let line = ended.exits(4).one_line();
    assert!(
        line.contains("mkfs.ext4") && line.contains("e2fsprogs"),
        "{line}"
    );
    assert!(line.contains("ext4-barrier@volatile"), "the cell: {line}");
    assert!(!folder.path().join("run").exists());
    ended.leaves_nothing();
}

#[test]
fn without_e2fsck_what_it_should_have_checked_is_inconclusive() {
    if require_or_skip(
        EXT4,
        "without_e2fsck_what_it_should_have_checked_is_inconclusive",
    )
    .is_err()
    {
        return;
    }
    let folder = folder();
    quick().write(folder.path());
    let ended = in_namespace(
        "mount --bind /dev/null \"$(readlink -f /usr/sbin/e2fsck)\"\n\
         exec \"$PLUGPULL\" run \"$FOLDER/scenario.toml\" --out \"$FOLDER/run\"",
        folder.path(),
    );
    ended.exits(3);
    assert!(
        ended.stdout.contains("e2fsck") && ended.stdout.contains("e2fsprogs"),
        "{}",
        ended.stdout
    );
    ended.leaves_nothing();
}

#[test]
fn without_fuse_ext4_cells_are_refused_and_the_remedy_is_named() {
    if require_or_skip(
        EXT4,
        "without_fuse_ext4_cells_are_refused_and_the_remedy_is_named",
    )
    .is_err()
    {
        return;
    }
    let folder = folder();
    let hide = "mount -t tmpfs tmpfs /dev\nmknod -m 666 /dev/null c 1 3\n\
                mknod -m 666 /dev/urandom c 1 9\nmknod /dev/loop-control c 10 237\n";
    let ended = in_namespace(
        &format!("{hide}exec \"$PLUGPULL\" run --out \"$FOLDER/run\""),
        folder.path(),
    );
    let line = ended.exits(4).one_line();
    assert!(
        line.contains("/dev/fuse") && line.contains("modprobe fuse"),
        "{line}"
    );
    assert!(!folder.path().join("run").exists());
    ended.leaves_nothing();
    // The raw stacks need none of it.
    let ended = in_namespace(
        &format!("{hide}exec \"$PLUGPULL\" run --cell 'raw-*' --out \"$FOLDER/raw\""),
        folder.path(),
    );
    ended.exits(1);
    let ended = in_namespace(&format!("{hide}exec \"$PLUGPULL\" doctor"), folder.path());
    ended.exits(4);
    assert!(ended.stdout.contains("/dev/fuse"), "{}", ended.stdout);
}

#[test]
fn a_fuse_that_opens_and_does_not_mount_is_inconclusive_in_words() {
    if require_or_skip(
        EXT4,
        "a_fuse_that_opens_and_does_not_mount_is_inconclusive_in_words",
    )
    .is_err()
    {
        return;
    }
    let folder = folder();
    let ended = in_namespace(
        "mount --bind /dev/null /dev/fuse\n\
         exec \"$PLUGPULL\" run --cell ext4-barrier@volatile --out \"$FOLDER/run\"",
        folder.path(),
    );
    ended.exits(3);
    assert!(ended.stdout.contains("FUSE"), "{}", ended.stdout);
    ended.leaves_nothing();
}

#[test]
fn without_root_only_raw_stacks_run() {
    if require_or_skip(&[Capability::Root], "without_root_only_raw_stacks_run").is_err() {
        return;
    }
    let folder = folder();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), open.clone()).expect("opened");
    let program = folder.path().join("plugpull");
    fs::copy(PROGRAM, &program).expect("copied");
    fs::set_permissions(&program, open).expect("opened");
    let out = |name: &str| folder.path().join(name);
    let nobody = |words: &[&std::ffi::OsStr]| {
        run(Command::new(&program)
            .args(words)
            .current_dir(folder.path())
            .env_remove("XDG_RUNTIME_DIR")
            .env("TMPDIR", folder.path())
            .uid(NOBODY)
            .gid(NOBODY))
    };
    let ended = nobody(&["run".as_ref(), "--out".as_ref(), out("all").as_os_str()]);
    let line = ended.exits(4).one_line();
    assert!(line.contains("root") && line.contains("sudo"), "{line}");
    assert!(line.contains("--cell 'raw-*'"), "what runs without: {line}");
    assert!(!out("all").exists());
    ended.leaves_nothing();

    let ended = nobody(&[
        "run".as_ref(),
        "--json".as_ref(),
        "--cell".as_ref(),
        "raw-*".as_ref(),
        "--out".as_ref(),
        out("raw").as_os_str(),
    ]);
    ended.exits(1);
    ended.leaves_nothing();
    let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
    assert_eq!(cell(&report, "raw-flush@volatile")["verdict"], "upheld");
    assert_eq!(cell(&report, "raw-noflush@volatile")["verdict"], "violated");
    assert_eq!(verdicts(&report).len(), 4);
    let ended = nobody(&[
        "replay".as_ref(),
        out("raw").as_os_str(),
        "raw-noflush@volatile#1".as_ref(),
    ]);
    ended.exits(1);
    assert!(
        ended.stdout.contains("judged again: lost"),
        "{}",
        ended.stdout
    );
    nobody(&["doctor".as_ref()]).exits(4);
    nobody(&["clean".as_ref()]).exits(0);
    // Nor does a folder that is not theirs end in more than a line.
    let ended = nobody(&[
        "run".as_ref(),
        "--cell".as_ref(),
        "raw-*".as_ref(),
        "--out".as_ref(),
        "/proc/plugpull-test".as_ref(),
    ]);
    assert!(ended.exits(5).one_line().contains("/proc/plugpull-test"));
}

// ---- A full disk --------------------------------------------------------------

#[test]
fn a_full_disk_is_one_line_and_leaves_nothing_attached() {
    if require_or_skip(EXT4, "a_full_disk_is_one_line_and_leaves_nothing_attached").is_err() {
        return;
    }
    let folder = folder();
    quick().write(folder.path());
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("made");
    // Too small for the plan, for the drive's log, for the log with its marks.
    for size in ["8k", "64k", "500k"] {
        let ended = in_namespace(
            &format!(
                "mount -t tmpfs -o size={size} tmpfs \"$FOLDER/disk\"\n\
                 code=0\n\
                 \"$PLUGPULL\" run \"$FOLDER/scenario.toml\" --out \"$FOLDER/disk/run\" || code=$?\n\
                 if test -s \"$FOLDER/disk/run/events.jsonl\"; then\n\
                 mount -o remount,size=64m \"$FOLDER/disk\"\n\
                 \"$PLUGPULL\" run --resume \"$FOLDER/disk/run\" --json\n\
                 fi\n\
                 exit $code"
            ),
            folder.path(),
        );
        let line = ended.exits(5).one_line();
        assert!(line.contains("No space left on device"), "{size}: {line}");
        assert!(
            line.contains(&*disk.to_string_lossy()),
            "{size}: the place: {line}"
        );
        assert!(line.contains("room"), "{size}: the remedy: {line}");
        ended.leaves_nothing();
        // With room again, what could not be recorded is recorded.
        if size != "8k" {
            let report: Value = serde_json::from_str(&ended.stdout)
                .unwrap_or_else(|e| panic!("{size}: a report: {e}: {}", ended.stdout));
            assert_eq!(report["verdict"], "upheld", "{size}: {report}");
        }
    }
}

#[test]
fn a_disk_that_fills_up_while_judging_keeps_what_was_found() {
    if require_or_skip(
        EXT4,
        "a_disk_that_fills_up_while_judging_keeps_what_was_found",
    )
    .is_err()
    {
        return;
    }
    let folder = folder();
    slow().write(folder.path());
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("made");
    // The shell stays, and with it the disk, until the folder `done` is there.
    let mut running = start(&mut namespace(
        "mount -t tmpfs -o size=8m tmpfs \"$FOLDER/disk\"\n\
         \"$PLUGPULL\" run \"$FOLDER/scenario.toml\" --out \"$FOLDER/disk/run\" \
         2>\"$FOLDER/stderr\" || echo $? >\"$FOLDER/code\"\n\
         while ! test -e \"$FOLDER/full\"; do sleep 0.02; done\n\
         cp -r \"$FOLDER/disk/run\" \"$FOLDER/kept\"\n\
         rm \"$FOLDER/disk/filler\"\n\
         \"$PLUGPULL\" run --resume \"$FOLDER/disk/run\" --json || echo $? >\"$FOLDER/again\"",
        folder.path(),
    ));
    let inside = PathBuf::from(format!("/proc/{}/root", running.pid()))
        .join(disk.strip_prefix("/").expect("absolute"));
    let out = inside.join("run");
    assert!(until(&mut running, || count(&events(&out), "found") > 0));
    // Until it is full; what ENOSPC says here is what was wanted.
    let filler = fs::File::create(inside.join("filler")).expect("created");
    while std::io::Write::write(&mut &filler, &[1; 4096]).is_ok() {}
    drop(filler);
    fs::write(folder.path().join("full"), "").expect("written");
    let ended = running.wait(LONG);
    ended.exits(0);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert_eq!(read("code"), "5\n", "{}", read("stderr"));
    let line = read("stderr");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("No space left on device"), "{line}");
    assert!(line.contains("--resume"), "how to go on: {line}");
    assert!(count(&events(&folder.path().join("kept")), "found") > 0);
    // With room again the run goes on to what it would have said.
    assert_eq!(read("again"), "1\n", "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
    assert_eq!(
        cell(&report, "ext4-nobarrier@volatile")["verdict"],
        "violated"
    );
    assert_eq!(cell(&report, "ext4-barrier@volatile")["verdict"], "upheld");
}

// ---- Interruption, company, closed pipes --------------------------------------

/// The verdicts of an undisturbed run of [`slow`].
fn undisturbed() -> &'static Vec<(String, String)> {
    static ONCE: OnceLock<Vec<(String, String)>> = OnceLock::new();
    ONCE.get_or_init(|| {
        let folder = folder();
        let scenario = slow().write(folder.path());
        let out = folder.path().join("run");
        run_scenario(&scenario, &out).exits(1);
        verdicts(&json(&out.join("report.json")))
    })
}

fn start_slow(folder: &Folder) -> (PathBuf, Running) {
    let scenario = slow().write(folder.path());
    let out = folder.path().join("run");
    let running = start(&mut command(&[
        "run".as_ref(),
        scenario.as_os_str(),
        "--out".as_ref(),
        out.as_os_str(),
    ]));
    (out, running)
}

#[test]
fn an_interrupted_run_goes_on_to_the_same_verdicts() {
    if require_or_skip(EXT4, "an_interrupted_run_goes_on_to_the_same_verdicts").is_err() {
        return;
    }
    // The kind and number of events at the moment of the signal, and a delay.
    let moments = [
        ("run-started", 1, 0, Signal::SIGINT),
        ("cell-started", 1, 60, Signal::SIGTERM),
        ("recorded", 1, 30, Signal::SIGINT),
        ("found", 1, 0, Signal::SIGINT),
        ("cell-started", 2, 90, Signal::SIGHUP),
        ("recorded", 2, 100, Signal::SIGINT),
    ];
    for (kind, number, delay_ms, signal) in moments {
        let folder = folder();
        let (out, mut running) = start_slow(&folder);
        let context = format!("{signal} {delay_ms} ms after {kind} {number}");
        assert!(
            until(&mut running, || count(&events(&out), kind) >= number),
            "{context}"
        );
        std::thread::sleep(Duration::from_millis(delay_ms));
        running.signal(signal);
        let signalled = running.elapsed();
        let ended = running.wait(LONG);
        assert!(
            ended.took - signalled < Duration::from_secs(10),
            "{context}: {:?}",
            ended.took
        );
        ended.is_calm();
        ended.leaves_nothing();
        let found = count(&events(&out), "found") > 0;
        let code = if found { 1 } else { 3 };
        assert_eq!(
            ended.code,
            Some(code),
            "{context}: {}{}",
            ended.stdout,
            ended.stderr
        );
        let line = ended.one_line();
        let command = format!("plugpull run --resume {}", out.display());
        assert!(line.contains(&command), "{context}: {line}");
        let report = json(&out.join("report.json"));
        assert_eq!(report["finished"], false, "{context}");
        let again = plugpull(&arguments(&["run", "--json", "--resume"], &[&out]));
        again.exits(1);
        again.leaves_nothing();
        let report: Value = serde_json::from_str(&again.stdout).expect("a report");
        assert_eq!(&verdicts(&report), undisturbed(), "{context}");
        assert_eq!(report["finished"], true, "{context}");
    }
}

#[test]
fn a_second_run_in_a_folder_that_is_in_use_exits_2() {
    if require_or_skip(EXT4, "a_second_run_in_a_folder_that_is_in_use_exits_2").is_err() {
        return;
    }
    let folder = folder();
    let (out, mut running) = start_slow(&folder);
    assert!(until(&mut running, || count(&events(&out), "recorded") > 0));
    let scenario = folder.path().join("scenario.toml");
    let second = run_scenario(&scenario, &out);
    assert!(second.exits(2).one_line().contains(&*out.to_string_lossy()));
    let resumed = plugpull(&arguments(&["run", "--resume"], &[&out]));
    assert!(
        resumed
            .exits(2)
            .one_line()
            .contains("another plugpull process")
    );
    let ended = running.wait(LONG);
    ended.exits(1);
    assert_eq!(&verdicts(&json(&out.join("report.json"))), undisturbed());
}

#[test]
fn two_runs_at_the_same_time_do_not_disturb_each_other() {
    if require_or_skip(EXT4, "two_runs_at_the_same_time_do_not_disturb_each_other").is_err() {
        return;
    }
    let folders = [folder(), folder()];
    let both: Vec<_> = folders.iter().map(start_slow).collect();
    for (out, running) in both {
        let ended = running.wait(LONG);
        ended.exits(1);
        ended.leaves_nothing();
        assert_eq!(&verdicts(&json(&out.join("report.json"))), undisturbed());
    }
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_failure() {
    let folder = folder();
    let out = finished(&folder);
    let scenario = folder.path().join("scenario.toml");
    let fresh = folder.path().join("fresh");
    let cases: [(Vec<&std::ffi::OsStr>, &[i32]); 5] = [
        (vec!["plan".as_ref()], &[0]),
        (vec!["doctor".as_ref()], &[0, 4]),
        (vec!["doctor".as_ref(), "--json".as_ref()], &[0, 4]),
        (
            vec![
                "replay".as_ref(),
                out.as_os_str(),
                "raw@volatile#1".as_ref(),
            ],
            &[1],
        ),
        (
            vec![
                "run".as_ref(),
                scenario.as_os_str(),
                "--out".as_ref(),
                fresh.as_os_str(),
            ],
            &[1],
        ),
    ];
    for (words, codes) in cases {
        let mut child = Command::new(PROGRAM)
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr, "", "{words:?}");
        let code = output.status.code().expect("an exit code");
        assert!(codes.contains(&code), "{words:?}: {code}");
    }
    // And a whole disk under stdout: the run itself is unharmed.
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let status = Command::new(PROGRAM)
        .args(["plan"])
        .stdout(full)
        .status()
        .expect("it runs");
    assert_ne!(status.code(), Some(101));
}
