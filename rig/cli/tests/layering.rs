//! The edges between the packages, and what no committed file may hold.
//!
//! Each rule is a function that returns its breaches. One test applies it to this repository, and
//! another shows on a made-up case that it can fail.

use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Package, folder, and the workspace packages it may depend on. Dev-dependencies are free.
const EDGES: &[(&str, &str, &[&str])] = &[
    ("plugpull-record", "workloads/record", &[]),
    ("plugpull-model", "rig/model", &["plugpull-record"]),
    (
        "plugpull-verify",
        "rig/verify",
        &["plugpull-model", "plugpull-record"],
    ),
    (
        "plugpull-generator",
        "workloads/generator",
        &["plugpull-model", "plugpull-record"],
    ),
    ("plugpull-crash", "controller/crash", &["plugpull-model"]),
    ("plugpull-power", "controller/power", &["plugpull-model"]),
    ("plugpull-link", "controller/link", &["plugpull-model"]),
    ("plugpull-reports", "reports", &["plugpull-model"]),
    (
        "plugpull",
        "rig/cli",
        &[
            "plugpull-record",
            "plugpull-model",
            "plugpull-verify",
            "plugpull-generator",
            "plugpull-crash",
            "plugpull-power",
            "plugpull-link",
            "plugpull-reports",
        ],
    ),
    (
        "plugpull-fixtures",
        "fixtures",
        &[
            "plugpull-model",
            "plugpull-record",
            "plugpull-crash",
            "plugpull-power",
        ],
    ),
];

/// Crates from outside that only the named packages may use.
const CONFINED: &[(&str, &[&str])] = &[
    ("tokio", &["plugpull-power", "plugpull-link", "plugpull"]),
    ("hyper", &["plugpull-power", "plugpull-link"]),
    ("reqwest", &["plugpull-power", "plugpull-link"]),
    ("ureq", &["plugpull-power", "plugpull-link"]),
    ("rustls", &["plugpull-power", "plugpull-link"]),
    ("native-tls", &["plugpull-power", "plugpull-link"]),
    ("async-snmp", &["plugpull-power", "plugpull-link"]),
    ("snmp2", &["plugpull-power", "plugpull-link"]),
];

/// Written in two halves, so that this file does not hold what it forbids.
const FORBIDDEN: &[&str] = &[
    concat!("..", "/shared"),
    concat!("/work", "/main"),
    concat!("/work", "/shared"),
    concat!("/work", "/."),
    concat!("/root", "/.cargo"),
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
];

/// What cargo writes into a lock file for its default registry, on every machine.
const DEFAULT_SOURCE: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

const MOST_LINES: usize = 900;

struct Package {
    name: String,
    folder: String,
    /// Normal and build dependencies: the package's name, and its local name where that differs.
    uses: Vec<(String, Option<String>)>,
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.canonicalize()
        .expect("the workspace is two folders up")
}

fn packages() -> Vec<Package> {
    let root = root();
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        // The edges stand in the manifests: nothing is resolved, and no network is needed.
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let described = metadata.packages.into_iter().map(|package| {
        let folder = package
            .manifest_path
            .parent()
            .expect("a manifest is in a folder");
        Package {
            name: package.name.to_string(),
            folder: folder
                .strip_prefix(&root)
                .expect("a member is in the workspace")
                .to_string(),
            uses: package
                .dependencies
                .into_iter()
                .filter(|edge| edge.kind != DependencyKind::Development)
                .map(|edge| (edge.name, edge.rename))
                .collect(),
        }
    });
    described.collect()
}

fn edge_breaches(packages: &[Package]) -> Vec<String> {
    let names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut breaches = Vec::new();
    for (name, folder, _) in EDGES {
        if !packages
            .iter()
            .any(|package| package.name == *name && package.folder == *folder)
        {
            breaches.push(format!("`{name}` is not at `{folder}`"));
        }
    }
    for package in packages {
        let name = package.name.as_str();
        let Some((_, _, allowed)) = EDGES.iter().find(|(known, _, _)| *known == name) else {
            breaches.push(format!("`{name}` is not in the table"));
            continue;
        };
        for (used, local_name) in &package.uses {
            let used = used.as_str();
            if names.contains(used) && !allowed.contains(&used) {
                breaches.push(format!("`{name}` depends on `{used}`"));
            }
            // Under another name its re-exports would go unseen.
            if names.contains(used) && local_name.is_some() {
                breaches.push(format!("`{name}` renames `{used}`"));
            }
            let confined = CONFINED.iter().find(|(outside, _)| *outside == used);
            if confined.is_some_and(|(_, homes)| !homes.contains(&name)) {
                breaches.push(format!("`{name}` uses `{used}`"));
            }
        }
    }
    breaches
}

/// The public re-exports of workspace packages in one source file, in any layout.
fn re_exports(source: &str) -> Vec<String> {
    let lines = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let code = lines
        .flat_map(str::split_whitespace)
        .collect::<Vec<_>>()
        .join(" ");
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|sign: char| !(sign.is_alphanumeric() || sign == '_'));
        parts
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let all = words(&code);
    let is_package = |word: &String| word.starts_with("plugpull_");
    // `use plugpull_x as y` makes `y` a name of it.
    let aliases: BTreeSet<&String> = all
        .windows(3)
        .filter(|three| is_package(&three[0]) && three[1] == "as")
        .map(|three| &three[2])
        .collect();
    let mut found = Vec::new();
    for start in ["pub use ", "pub extern crate "] {
        for (at, _) in code.match_indices(start) {
            let statement = code[at..].split(';').next().unwrap_or_default();
            if words(statement)
                .iter()
                .any(|word| is_package(word) || aliases.contains(word))
            {
                found.push(statement.to_owned());
            }
        }
    }
    found
}

/// The files that are committed or could be: all but what is ignored.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        // A clone that another user made is still read, and nothing more.
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let mut files = Vec::new();
    match listed {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8_lossy(&output.stdout).into_owned();
            files.extend(names.split_terminator('\0').map(str::to_owned));
        }
        // An unpacked archive is no git checkout.
        _ => walk(&root(), "", &mut files),
    }
    files.retain(|file| root().join(file).is_file());
    assert!(
        files.iter().any(|file| file == "Cargo.toml"),
        "no files listed: {files:?}"
    );
    files
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder can be listed") {
        let entry = entry.expect("a folder can be listed");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        match entry.file_type().expect("a file has a type").is_dir() {
            true if matches!(name.as_str(), "target" | "runs" | ".git") => {}
            true => walk(&entry.path(), &format!("{path}/"), files),
            false => files.push(path),
        }
    }
}

/// Each file with its text. One that another process removes meanwhile is no longer committed.
fn texts() -> impl Iterator<Item = (String, String)> {
    files().into_iter().filter_map(|file| {
        let bytes = fs::read(root().join(&file)).ok()?;
        Some((file, String::from_utf8_lossy(&bytes).into_owned()))
    })
}

fn text_breaches(file: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let is_lock = file.ends_with("Cargo.lock");
    for (line, words) in (1..).zip(text.lines()) {
        let words = if is_lock {
            words.replace(DEFAULT_SOURCE, "")
        } else {
            words.to_owned()
        };
        let found = FORBIDDEN
            .iter()
            .find(|forbidden| words.contains(*forbidden));
        breaches.extend(found.map(|forbidden| format!("{file}:{line} mentions `{forbidden}`")));
        let locked_elsewhere =
            is_lock && words.starts_with("source = \"") && words != "source = \"\"";
        let configured = file.contains(".cargo/config")
            && ["[source", "[registries", "replace-with"]
                .iter()
                .any(|key| words.contains(key));
        if locked_elsewhere || configured {
            breaches.push(format!("{file}:{line} names a source of packages: {words}"));
        }
    }
    breaches
}

fn source_breaches(file: &str, lines: usize) -> Vec<String> {
    let parts: Vec<&str> = file.split('/').collect();
    let name = parts.last().copied().unwrap_or_default();
    let is_test = parts.contains(&"tests") || name == "tests.rs" || name.ends_with("_tests.rs");
    let mut breaches = Vec::new();
    if !file.ends_with(".rs") {
        return breaches;
    }
    if lines > MOST_LINES && !is_test {
        breaches.push(format!(
            "{file} has {lines} lines, the most are {MOST_LINES}"
        ));
    }
    if matches!(name, "util.rs" | "utils.rs") || parts.contains(&"util") {
        breaches.push(format!("{file} is named for nothing in particular"));
    }
    breaches
}

/// `.ci/long` runs every ignored test, so that no test may be ignored for another reason.
fn ignore_breaches(file: &str, source: &str) -> Vec<String> {
    let ignored = (1..).zip(source.lines().map(str::trim_start));
    ignored
        .filter(|(_, line)| {
            line.starts_with("#[ignore") && !line.starts_with("#[ignore = \"long: ")
        })
        .map(|(line, _)| format!("{file}:{line} is ignored for another reason than `long: `"))
        .collect()
}

#[test]
fn the_packages_depend_on_each_other_only_as_the_table_allows() {
    assert_eq!(edge_breaches(&packages()), Vec::<String>::new());
}

#[test]
fn no_package_re_exports_another() {
    let mut folders: BTreeMap<String, usize> = packages()
        .into_iter()
        .map(|package| (format!("{}/src/", package.folder), 0))
        .collect();
    let mut breaches = Vec::new();
    for (file, text) in texts().filter(|(file, _)| file.ends_with(".rs")) {
        if let Some((_, seen)) = folders
            .iter_mut()
            .find(|(folder, _)| file.starts_with(*folder))
        {
            *seen += 1;
            breaches.extend(
                re_exports(&text)
                    .into_iter()
                    .map(|export| format!("{file}: {export}")),
            );
        }
    }
    assert!(
        folders.values().all(|seen| *seen > 0),
        "a package without sources: {folders:?}"
    );
    assert_eq!(breaches, Vec::<String>::new());
}

#[test]
fn no_committed_file_names_a_place_outside_the_repository() {
    let breaches: Vec<String> = texts()
        .flat_map(|(file, text)| text_breaches(&file, &text))
        .collect();
    assert_eq!(breaches, Vec::<String>::new());
}

#[test]
fn no_source_file_is_too_long_or_named_for_nothing() {
    let breaches: Vec<String> = texts()
        .flat_map(|(file, text)| source_breaches(&file, text.lines().count()))
        .collect();
    assert_eq!(breaches, Vec::<String>::new());
}

#[test]
fn no_test_is_ignored_but_the_long_ones() {
    let sources = texts().filter(|(file, _)| file.ends_with(".rs"));
    let breaches: Vec<String> = sources
        .flat_map(|(file, text)| ignore_breaches(&file, &text))
        .collect();
    assert_eq!(breaches, Vec::<String>::new());
}

/// The table itself as packages, with one more dependency.
fn table_and(user: &str, used: &str, local_name: Option<&str>) -> Vec<Package> {
    let described = EDGES.iter().map(|(name, folder, allowed)| Package {
        name: (*name).to_owned(),
        folder: (*folder).to_owned(),
        uses: allowed
            .iter()
            .map(|used| ((*used).to_owned(), None))
            .collect(),
    });
    let mut packages: Vec<Package> = described.collect();
    let package = packages.iter_mut().find(|package| package.name == user);
    let package = package.expect("the user is in the table");
    package
        .uses
        .push((used.to_owned(), local_name.map(str::to_owned)));
    packages
}

#[test]
fn a_forbidden_edge_is_found() {
    for (user, used) in [
        ("plugpull-record", "serde"),
        ("plugpull-link", "tokio"),
        ("plugpull", "tokio"),
    ] {
        assert_eq!(
            edge_breaches(&table_and(user, used, None)),
            Vec::<String>::new()
        );
    }
    for (user, used) in [
        ("plugpull-record", "plugpull-model"),
        ("plugpull-verify", "plugpull-generator"),
        ("plugpull-crash", "plugpull-record"),
        ("plugpull-reports", "plugpull-verify"),
        ("plugpull", "plugpull-fixtures"),
        ("plugpull-generator", "plugpull"),
        ("plugpull-crash", "tokio"),
        ("plugpull", "ureq"),
    ] {
        let breaches = edge_breaches(&table_and(user, used, None));
        assert_eq!(breaches.len(), 1, "{user} -> {used}: {breaches:?}");
        assert!(
            breaches[0].contains(user) && breaches[0].contains(used),
            "{breaches:?}"
        );
    }
    let renamed = edge_breaches(&table_and(
        "plugpull-verify",
        "plugpull-model",
        Some("nouns"),
    ));
    assert_eq!(renamed, ["`plugpull-verify` renames `plugpull-model`"]);
}

#[test]
fn a_package_that_is_moved_or_unknown_is_found() {
    let mut packages = table_and("plugpull", "serde", None);
    packages[0].folder = "elsewhere".to_owned();
    packages[2].name = "plugpull-new".to_owned();
    assert_eq!(
        edge_breaches(&packages)[..3],
        [
            "`plugpull-record` is not at `workloads/record`",
            "`plugpull-verify` is not at `rig/verify`",
            "`plugpull-new` is not in the table",
        ]
    );
}

#[test]
fn a_re_export_is_found_in_any_layout() {
    for source in [
        "pub use plugpull_model::Verdict;",
        "pub use ::plugpull_model::Verdict;",
        "pub use plugpull_record;",
        "pub  use\n    plugpull_record::*;",
        "pub use {std::fmt, plugpull_model::{Plan, Trial}};",
        "pub extern crate plugpull_model;",
        "use plugpull_model as nouns;\npub use nouns::Plan;",
    ] {
        assert_eq!(re_exports(source).len(), 1, "{source}");
    }
    for source in [
        "use plugpull_model::Verdict;",
        "pub(crate) use plugpull_model::Verdict;",
        "// pub use plugpull_model::Verdict;",
        "pub use crate::plan::Plan; use plugpull_model::Trial;",
        "pub fn plugpull_model() {}",
        "pub use self::model::Plan;",
    ] {
        assert_eq!(re_exports(source), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn a_place_outside_the_repository_is_found() {
    for forbidden in FORBIDDEN {
        let breaches = text_breaches("README.md", &format!("first\nsee {forbidden} there\n"));
        assert_eq!(breaches, [format!("README.md:2 mentions `{forbidden}`")]);
    }
    let lock = format!("source = \"{DEFAULT_SOURCE}\"\n");
    assert_eq!(text_breaches("Cargo.lock", &lock), Vec::<String>::new());
    assert_eq!(text_breaches("README.md", &lock).len(), 1);
    assert_eq!(
        text_breaches("Cargo.lock", "source = \"sparse+https://mirror/\"\n").len(),
        1
    );
    assert_eq!(
        text_breaches(".cargo/config.toml", "[source.mirror]\n").len(),
        1
    );
}

#[test]
fn a_source_file_too_long_or_named_for_nothing_is_found() {
    assert_eq!(source_breaches("rig/cli/src/run.rs", 901).len(), 1);
    assert_eq!(
        source_breaches("rig/cli/src/run.rs", 900),
        Vec::<String>::new()
    );
    assert_eq!(
        source_breaches("rig/cli/tests/run.rs", 5000),
        Vec::<String>::new()
    );
    assert_eq!(
        source_breaches("rig/cli/src/run/tests.rs", 5000),
        Vec::<String>::new()
    );
    assert_eq!(source_breaches("rig/cli/src/util.rs", 1).len(), 1);
    assert_eq!(source_breaches("rig/cli/src/util/paths.rs", 1).len(), 1);
    assert_eq!(source_breaches("README.md", 5000), Vec::<String>::new());
}

#[test]
fn a_test_ignored_for_another_reason_is_found() {
    let long = "    #[ignore = \"long: 20,000 crash images\"]\n    fn a() {}\n";
    assert_eq!(ignore_breaches("a.rs", long), Vec::<String>::new());
    for other in ["#[ignore]", "#[ignore = \"flaky\"]"] {
        assert_eq!(ignore_breaches("a.rs", other).len(), 1);
    }
}
