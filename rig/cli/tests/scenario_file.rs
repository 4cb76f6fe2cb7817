//! Reading scenarios: what a person sees when something is wrong with one.

use std::fs;
use std::path::Path;

use plugpull::scenario_file::{
    LoadedScenario, MAX_SCENARIO_BYTES, Origin, QUICKSTART, ScenarioError, load, parse, plan,
};
use plugpull_model::drive::{Cache, Honesty};
use plugpull_model::seed::Seed;
use plugpull_model::stack::Filesystem;
use plugpull_model::verdict::{Exit, Role};
use plugpull_model::workload::Acknowledge;

/// A small valid scenario; tests break it. Lines matter.
const BASE: &str = r#"schema = 1
name = "base"

[workload.append-log]
records_per_writer = 10

[stacks.safe]
filesystem = "ext4"
mount = "barrier=1"

[drives.volatile]
cache = "volatile"

[matrix]
stacks = ["safe"]
drives = ["volatile"]
"#;

/// Parses and plans, as `plugpull run` does.
fn check(text: &str) -> Result<(), ScenarioError> {
    let scenario = parse(text, "s.toml")?;
    let loaded = LoadedScenario {
        scenario,
        text: text.to_owned(),
        origin: Origin::File("s.toml".into()),
    };
    plan(&loaded, None).map(|_| ())
}

fn message_of(text: &str) -> String {
    let error = check(text).expect_err("the scenario is wrong");
    assert_eq!(error.exit(), Exit::Usage);
    let message = error.to_string();
    assert!(!message.contains('\n'), "one line: {message:?}");
    message
}

/// The messages of several edits of [`BASE`], one a line.
fn messages(edits: &[(&str, &str)]) -> String {
    edits
        .iter()
        .map(|(from, to)| {
            assert!(BASE.contains(from), "{from} is not in the base");
            message_of(&BASE.replacen(from, to, 1))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_base_of_these_tests_is_valid() {
    check(BASE).expect("valid");
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest_key() {
    insta::assert_snapshot!(messages(&[
        ("cache =", "cahce ="),
        ("cache =", "\"ca\\u0063h\" ="),
        ("cache = \"volatile\"", "cache = \"volatile\"\nlogical-block-bytes = 512"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nwrite_us = 20"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice.write_ms = 20"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice = { flush_us = 1, write_ms = 20 }"),
        ("cache = \"volatile\"", "cache = \"volatile\"\n[drives.volatile.service]\nflush_ms = 1"),
        ("[drives.volatile]\ncache = \"volatile\"", "[drives]\nvolatile = { cache = \"volatile\", flushes = 1 }"),
        ("[drives.volatile]\ncache = \"volatile\"", "[drives]\nvolatile.cache = \"volatile\"\nvolatile.colour = 1"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nseed = 3"),
        ("[stacks.safe]", "[stacks.\"my stack\"]\nmuont = \"\""),
        ("[stacks.safe]", "[stack.safe]"),
        ("[workload.append-log]", "[workload.append-lgo]"),
        ("[workload.append-log]", "[workload.append-log]\nrecords = 3"),
        ("[matrix]", "[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\n[[cells]]\nstak = \"safe\"\ndrive = \"volatile\"\n[matrix]"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nfaults = [{ write-eio = { from_event = 1, to_evnt = 2 } }]"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nfaults = [\n  \"shorn\",\n  { dead-devise = { from_event = 1 } },\n]"),
        ("[matrix]", "[budget]\nimages = 3\n[contract]\n\n\"\" = 1\n[matrix]"),
        ("[matrix]", "[budget]\n\"a\\nb\\u001b[31m\" = 3\n[matrix]"),
    ]), @r#"
    s.toml:12: unknown key `cahce` in drives.volatile; did you mean `cache`?
    s.toml:12: unknown key `cach` in drives.volatile; did you mean `cache`?
    s.toml:13: unknown key `logical-block-bytes` in drives.volatile; did you mean `logical_block_bytes`?
    s.toml:13: unknown key `write_us` in drives.volatile; it is a key of [drives.NAME.service]; valid keys here: `cache`, `flush`, `fua`, `write_cache_reported`, `logical_block_bytes`, `atomic_write_bytes`, `atomic_boundary_bytes`, `survivors`, `in_flight`, `cache_bytes`, `discard_reads`, `service`, `faults`
    s.toml:13: unknown key `write_ms` in drives.volatile.service; did you mean `write_us`?
    s.toml:13: unknown key `write_ms` in drives.volatile.service; did you mean `write_us`?
    s.toml:14: unknown key `flush_ms` in drives.volatile.service; did you mean `flush_us`?
    s.toml:12: unknown key `flushes` in drives.volatile; did you mean `flush`?
    s.toml:13: unknown key `colour` in drives.volatile; valid keys here: `cache`, `flush`, `fua`, `write_cache_reported`, `logical_block_bytes`, `atomic_write_bytes`, `atomic_boundary_bytes`, `survivors`, `in_flight`, `cache_bytes`, `discard_reads`, `service`, `faults`
    s.toml:13: unknown key `seed` in drives.volatile; it is a key of the top level, above the first [table]; valid keys here: `cache`, `flush`, `fua`, `write_cache_reported`, `logical_block_bytes`, `atomic_write_bytes`, `atomic_boundary_bytes`, `survivors`, `in_flight`, `cache_bytes`, `discard_reads`, `service`, `faults`
    s.toml:8: unknown key `muont` in stacks."my stack"; did you mean `mount`?
    s.toml:7: unknown key `stack` at the top level; did you mean `stacks`?
    s.toml:4: unknown key `append-lgo` in workload; did you mean `append-log`?
    s.toml:5: unknown key `records` in workload.append-log; did you mean `records_per_writer`?
    s.toml:18: unknown key `stak` in cells; did you mean `stack`?
    s.toml:13: unknown key `to_evnt` in drives.volatile.faults.write-eio; did you mean `to_event`?
    s.toml:15: unknown key `dead-devise` in drives.volatile.faults; did you mean `dead-device`?
    s.toml:15: unknown key `images` in budget; did you mean `images_per_cell`?
    s.toml:15: unknown key `a\nb\u{1b}[31m` in budget; valid keys here: `exhaustive_states_per_cut`, `sampled_states_per_cut`, `images_per_cell`, `use_every`, `hang_after_ms`
    "#);
}

#[test]
fn an_unknown_value_names_its_line_and_the_nearest_value() {
    insta::assert_snapshot!(messages(&[
        ("cache = \"volatile\"", "cache = \"volatil\""),
        ("cache = \"volatile\"", "cache = \"writeback\""),
        ("cache = \"volatile\"", "cache = \"volatile\"\n\nfaults = [\"shorn\", \"bit_corruption\"]"),
        ("filesystem = \"ext4\"", "filesystem = \"xfs\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\nacknowledge = \"O_DSYNC\""),
        ("[matrix]", "[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\nrole = \"mustfail\"\n[matrix]"),
        ("[workload.append-log]\nrecords_per_writer = 10", "workload = \"append\""),
        ("[matrix]", "[contract]\norder = '''\nprefix\n'''\n[matrix]"),
    ]), @r#"
    s.toml:12: drives.volatile.cache: unknown value `volatil`; did you mean `volatile`?
    s.toml:12: drives.volatile.cache: unknown value `writeback`; valid values: `volatile`, `protected`, `none`
    s.toml:14: drives.volatile.faults: unknown value `bit_corruption`; did you mean `bit-corruption`?
    s.toml:8: stacks.safe.filesystem: unknown value `xfs`; valid values: `ext4`, `none`
    s.toml:9: stacks.safe.acknowledge: unknown value `O_DSYNC`; did you mean `o-dsync`?
    s.toml:17: cells.role: unknown value `mustfail`; did you mean `must-fail`?
    s.toml:4: workload: unknown value `append`; did you mean `append-log`?
    s.toml:15: contract.order: unknown value `prefix\n`; did you mean `prefix`?
    "#);
}

#[test]
fn a_missing_key_names_its_table_and_what_to_add() {
    insta::assert_snapshot!(messages(&[
        ("schema = 1\n", ""),
        ("name = \"base\"\n", ""),
        ("cache = \"volatile\"", ""),
        ("[drives.volatile]\ncache = \"volatile\"", "[drives]\nvolatile = {}"),
        ("[drives.volatile]\ncache = \"volatile\"", ""),
        ("filesystem = \"ext4\"", ""),
        ("records_per_writer = 10", ""),
        ("[workload.append-log]\nrecords_per_writer = 10", ""),
        ("[matrix]", "[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\n\n[[cells]]\nstack = \"safe\"\n[matrix]"),
        ("[matrix]", "[[cells]]\ndrive = \"volatile\"\n[matrix]"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nfaults = [{ write-eio = { from_event = 1 } }]"),
    ]), @r#"
    s.toml:1: missing key `schema` at the top level; add `schema = 1`
    s.toml:1: missing key `name` at the top level; add `name = "..."`
    s.toml:11: missing key `cache` in drives.volatile; add `cache = "volatile"`, `"protected"` or `"none"`
    s.toml:12: missing key `cache` in drives.volatile; add `cache = "volatile"`, `"protected"` or `"none"`
    s.toml:1: missing key `drives` at the top level; add a table `[drives.NAME]`
    s.toml:7: missing key `filesystem` in stacks.safe; add `filesystem = "ext4"` or `"none"`
    s.toml:4: missing key `records_per_writer` in workload.append-log; add `records_per_writer = 10`, or another number
    s.toml:1: missing key `workload` at the top level; add a table `[workload.append-log]`
    s.toml:18: missing key `drive` in cells; add `drive = "NAME"`, the name of a drive
    s.toml:14: missing key `stack` in cells; add `stack = "NAME"`, the name of a stack
    s.toml:13: missing key `to_event` in drives.volatile.faults.write-eio
    "#);
    insta::assert_snapshot!(message_of(""), @"s.toml:1: missing key `schema` at the top level; add `schema = 1`");
}

#[test]
fn a_wrong_unit_or_an_impossible_size_is_refused_with_the_right_form() {
    insta::assert_snapshot!(messages(&[
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = \"64 MB\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = \"64m\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = \"1.5 GiB\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = -1"),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = \"-64 MiB\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = 0"),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = 6.4e7"),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = \"64 TiB\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = \"640 GiB\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = 99999999999999999999"),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = 9999999999999999999999999999999999999999"),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = \"99999999999 GiB\""),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = [64]"),
        ("filesystem = \"ext4\"", "filesystem = \"ext4\"\ndevice_bytes = 1979-05-27"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice = { write_us = \"20 us\" }"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice = { write_us = -20 }"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice = { write_us = 5000000000 }"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice.write_us = 5000000"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice = [20, 50]"),
        ("records_per_writer = 10", "records_per_writer = \"10\""),
        ("records_per_writer = 10", "records_per_writer = -10"),
        ("records_per_writer = 10", "records_per_writer = 0"),
        ("records_per_writer = 10", "records_per_writer = 10\nwriters = 1000000"),
        ("records_per_writer = 10", "records_per_writer = 10\nrecord_bytes = 1000"),
        ("records_per_writer = 10", "records_per_writer = 10\ndirect = \"yes\""),
        ("schema = 1", "schema = 1\nseed = -1"),
    ]), @r#"
    s.toml:9: stacks.safe.device_bytes: `64 MB` is not a size; did you mean "64 MiB"?
    s.toml:9: stacks.safe.device_bytes: `64m` is not a size; did you mean "64 MiB"?
    s.toml:9: stacks.safe.device_bytes: `1.5 GiB` is not a size; write bytes as an integer, or a number with B, KiB, MiB or GiB, for example "64 MiB"
    s.toml:9: stacks.safe.device_bytes: a size cannot be negative (-1)
    s.toml:9: stacks.safe.device_bytes: a size cannot be negative (`-64 MiB`); write bytes as an integer, or a number with B, KiB, MiB or GiB, for example "64 MiB"
    s.toml:9: stacks.safe.device_bytes: 0 B is not a multiple of 4096 up to 64 GiB
    s.toml:9: stacks.safe.device_bytes is 6.4e7; it must be a size: bytes as an integer, or a string such as "64 MiB"
    s.toml:9: stacks.safe.device_bytes: `64 TiB` is not a size; write bytes as an integer, or a number with B, KiB, MiB or GiB, for example "64 MiB"
    s.toml:9: stacks.safe.device_bytes: 640 GiB is not a multiple of 4096 up to 64 GiB
    s.toml:9: stacks.safe.device_bytes: 99999999999999999999 is no integer of 64 bits, so it is no count and no size
    s.toml:9: stacks.safe.device_bytes: 9999999999999999999999999999999999999999 is no integer of 64 bits, so it is no count and no size
    s.toml:9: stacks.safe.device_bytes: `99999999999 GiB` does not fit in 64 bits of bytes, so it is no size
    s.toml:9: stacks.safe.device_bytes is an array; it must be a size: bytes as an integer, or a string such as "64 MiB"
    s.toml:9: stacks.safe.device_bytes is the date 1979-05-27; it must be a size: bytes as an integer, or a string such as "64 MiB"
    s.toml:13: drives.volatile.service.write_us is the text "20 us"; it must be an integer of microseconds from 0 to 4294967295, without quotes; the unit is in the key
    s.toml:13: drives.volatile.service.write_us is -20; it must be an integer of microseconds from 0 to 4294967295
    s.toml:13: drives.volatile.service.write_us is 5000000000; it must be an integer of microseconds from 0 to 4294967295
    s.toml:13: drives.volatile.service: a service time above 1000000 us is not a drive
    s.toml:13: drives.volatile.service is an array; it must be a table
    s.toml:5: workload.append-log.records_per_writer is the text "10"; it must be an integer from 0 to 4294967295, without quotes
    s.toml:5: workload.append-log.records_per_writer is -10; it must be an integer from 0 to 4294967295
    s.toml:5: workload.append-log.records_per_writer: 0 records in all; there must be from 1 to 16000000
    s.toml:6: workload.append-log.writers: 1000000 is not from 1 to 256
    s.toml:6: workload.append-log.record_bytes: 1000 is not a multiple of 512 from 512 to 1 MiB
    s.toml:6: workload.append-log.direct is the text "yes"; it must be true or false
    s.toml:2: seed is -1; it must be an integer from 0 to 18446744073709551615
    "#);
}

#[test]
fn something_named_twice_names_both_lines() {
    insta::assert_snapshot!(messages(&[
        ("[drives.volatile]", "[stacks.safe]\nfilesystem = \"none\"\n[drives.volatile]"),
        ("[drives.volatile]", "[stacks.\"safe\"]\n[stacks.safe]\n[drives.volatile]"),
        ("[drives.volatile]", "[stacks]\nsafe = { filesystem = \"none\" }\n[drives.volatile]"),
        ("[matrix]", "[drives.volatile]\ncache = \"none\"\n[matrix]"),
        ("mount = \"barrier=1\"", "mount = \"barrier=1\"\n\n'mount' = \"barrier=0\""),
        ("[drives.volatile]\ncache = \"volatile\"", "[drives]\nvolatile = { cache = \"volatile\", fua = \"ignored\", cache = \"none\" }"),
        ("[drives.volatile]\ncache = \"volatile\"", "[drives]\nother = { cache = \"none\" }\nvolatile.cache = \"volatile\"\nvolatile.cache = \"none\""),
        ("schema = 1", "schema = 1\nschema = 1"),
        ("[matrix]", "[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\n[[cells]]\nstack = \"safe\"\nstack = \"safe\"\n[matrix]"),
        ("[matrix]", "[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\n[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\n[matrix]"),
        ("stacks = [\"safe\"]", "stacks = [\n  \"safe\",\n  \"safe\",\n]"),
        ("[matrix]", "[matrix]\n[matrix]"),
    ]), @r#"
    s.toml:11: the stack `safe` is defined twice, first on line 7; remove or rename one
    s.toml:11: the stack `safe` is defined twice, first on line 7; remove or rename one
    s.toml:12: the stack `safe` is defined twice, first on line 7; remove or rename one
    s.toml:14: the drive `volatile` is defined twice, first on line 11; remove or rename one
    s.toml:11: the key `mount` is given twice in stacks.safe, first on line 9; remove or rename one
    s.toml:12: the key `cache` is given twice in drives.volatile, first on line 12; remove or rename one
    s.toml:14: the key `cache` is given twice in drives.volatile, first on line 13; remove or rename one
    s.toml:2: the key `schema` is given twice at the top level, first on line 1; remove or rename one
    s.toml:19: the key `stack` is given twice in cells, first on line 18; remove or rename one
    s.toml:17: cells: `safe` on `volatile` is named twice; remove one
    s.toml:17: matrix: `safe` on `volatile` is named twice; remove one
    s.toml:15: the key `matrix` is given twice at the top level, first on line 14; remove or rename one
    "#);
}

#[test]
fn a_name_that_nothing_has_is_found_where_it_is_used() {
    insta::assert_snapshot!(messages(&[
        ("stacks = [\"safe\"]", "stacks = [\n  \"safe\",\n  \"save\",\n]"),
        ("drives = [\"volatile\"]", "drives = [\"volatile\",\n  \"lying\"]"),
        ("[matrix]", "[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\n[[cells]]\nstack = \"safe\"\ndrive = \"volatle\"\n[matrix]"),
        ("[matrix]", "[[cells]]\nstack = \"unsafe\"\ndrive = \"volatile\"\n[matrix]"),
        ("[matrix]\nstacks = [\"safe\"]\ndrives = [\"volatile\"]", "[contract]\n\n[matrix]\nstacks = []"),
        ("[matrix]\nstacks = [\"safe\"]\ndrives = [\"volatile\"]", ""),
        ("[matrix]\nstacks = [\"safe\"]\ndrives = [\"volatile\"]", "[[cells]]\nstack = \"safe\"\ndrive = \"volatile\"\nrole = \"must-fail\""),
    ]), @r#"
    s.toml:17: matrix.stacks: no stack is called `save`; there are: safe; did you mean `safe`?
    s.toml:17: matrix.drives: no drive is called `lying`; there are: volatile
    s.toml:19: cells: no drive is called `volatle`; there are: volatile; did you mean `volatile`?
    s.toml:15: cells: no stack is called `unsafe`; there are: safe; did you mean `safe`?
    s.toml:16: matrix: the scenario names no cell; give `matrix` or `[[cells]]`
    s.toml:1: matrix: the scenario names no cell; give `matrix` or `[[cells]]`
    s.toml:1: matrix: no cell is a subject, so there is nothing to judge; list stacks and drives in `matrix`, or a `[[cells]]` without a role
    "#);
}

#[test]
fn a_value_that_cannot_run_is_found_by_its_path() {
    insta::assert_snapshot!(messages(&[
        ("name = \"base\"", "name = \"a/b\""),
        ("[stacks.safe]", "[stacks.safe]\nrecovery = [\"e2fsck -p\"]"),
        ("[stacks.safe]", "[stacks.safe]\nacknowledge = \"flush\""),
        ("filesystem = \"ext4\"\nmount = \"barrier=1\"", "filesystem = \"none\""),
        ("[drives.volatile]", "[drives.volatile]\n\nlogical_block_bytes = 1000"),
        ("[drives.volatile]", "[drives.volatile]\n\natomic_write_bytes = 512"),
        ("[drives.volatile]", "[drives.\"v.w\"]\ncache = \"none\"\ncache_bytes = 0\n[drives.v]\ncache = \"none\"\n[drives.volatile]"),
        ("[drives.volatile]\ncache = \"volatile\"", "[drives]\nvolatile = { cache = \"volatile\",\n cache_bytes = 0 }"),
        ("[drives.volatile]", "[drives.\"a b\"]\ncache = \"none\"\n[drives.volatile]"),
        ("[drives.volatile]", "[drives.\"\"]\ncache = \"none\"\n[drives.volatile]"),
        ("[matrix]", "[budget]\nuse_every = 0\n[matrix]"),
        ("[matrix]", "budget.use_every = 0\n[matrix]"),
    ]), @r#"
    s.toml:2: name: `a/b` is not a name: use 1 to 64 letters, digits, `-`, `_` or `.`
    s.toml:8: stacks.safe.recovery: a recovery ends with `mount`, and holds it once; for example ["e2fsck -p", "mount"]
    s.toml:8: stacks.safe.acknowledge: a file system acknowledges by `fsync`, `fdatasync`, `o-sync`, `o-dsync` or `none`
    s.toml:7: stacks.safe.acknowledge: a stack without a file system acknowledges by `flush`, `fua` or `none`; set it in the stack
    s.toml:13: drives.volatile.logical_block_bytes: 1000 is not 512, 1024, 2048 or 4096
    s.toml:13: drives.volatile.atomic_write_bytes: 512 is not a multiple of the logical block (4096) up to 16 MiB
    s.toml:13: drives.v.w.cache_bytes: a cache of 0 bytes is `cache = "none"`
    s.toml:13: drives.volatile.cache_bytes: a cache of 0 bytes is `cache = "none"`
    s.toml:11: drives.a b: `a b` is not a name: use 1 to 64 letters, digits, `-`, `_` or `.`
    s.toml:11: drives.: `` is not a name: use 1 to 64 letters, digits, `-`, `_` or `.`
    s.toml:15: budget.use_every: 0 is not from 1 to 4294967295
    s.toml:14: unknown key `budget` in drives.volatile; it is a key of the top level, above the first [table]; valid keys here: `cache`, `flush`, `fua`, `write_cache_reported`, `logical_block_bytes`, `atomic_write_bytes`, `atomic_boundary_bytes`, `survivors`, `in_flight`, `cache_bytes`, `discard_reads`, `service`, `faults`
    "#);
}

#[test]
fn a_wrong_shape_says_what_belongs_there() {
    insta::assert_snapshot!(messages(&[
        ("[matrix]", "[[matrix]]"),
        ("[stacks.safe]", "[[stacks.safe]]"),
        ("[matrix]", "[cells]\nstack = \"safe\"\n[matrix]"),
        ("[matrix]", "[other]\n[matrix]"),
        ("stacks = [\"safe\"]", "stacks = \"safe\""),
        ("stacks = [\"safe\"]", "stacks = [\"safe\",\n 1]"),
        ("name = \"base\"", "name = 3"),
        ("[stacks.safe]", "[stacks]\nx = 1\n[stacks.safe]"),
        ("[workload.append-log]\nrecords_per_writer = 10", "[workload]"),
        ("[workload.append-log]\nrecords_per_writer = 10", "workload = \"append-log\""),
        ("[workload.append-log]\nrecords_per_writer = 10", "workload = 3"),
        ("[workload.append-log]\nrecords_per_writer = 10", "[workload.append-log]\nrecords_per_writer = 10\n[workload.other]"),
        ("cache = \"volatile\"", "cache = true"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nfaults = [\"write-eio\"]"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nfaults = [{ shorn = { x = 1 } }]"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nfaults = [{ shorn = {}, misdirected = {} }]"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nfaults = \"shorn\""),
        ("schema = 1", "schema = 2\nunknown = 1"),
        ("schema = 1", "schema = \"1\""),
        ("schema = 1", "schema = -1"),
    ]), @r#"
    s.toml:14: matrix is an array of tables, `[[matrix]]`; it must be one table, `[matrix]`
    s.toml:7: stacks.safe is an array of tables, `[[stacks.safe]]`; it must be one table, `[stacks.safe]`
    s.toml:14: cells is a table; it must be an array of tables, `[[cells]]`
    s.toml:14: unknown key `other` at the top level; valid keys here: `schema`, `name`, `seed`, `workload`, `stacks`, `drives`, `matrix`, `cells`, `contract`, `budget`
    s.toml:15: matrix.stacks is the text "safe"; it must be an array, `[...]`
    s.toml:16: matrix.stacks is 1; it must be a text in quotes
    s.toml:2: name is 3; it must be a text in quotes
    s.toml:8: stacks.x is 1; it must be a table
    s.toml:4: workload is a table of 0 keys; it must be a table of exactly one workload, `[workload.append-log]`
    s.toml:4: workload: `append-log` has keys of its own; write a table `[workload.append-log]`
    s.toml:4: workload is 3; it must be a table `[workload.append-log]`
    s.toml:4: workload is a table of 2 keys; it must be a table of exactly one workload, `[workload.append-log]`
    s.toml:12: drives.volatile.cache is true; it must be one of "volatile", "protected", "none"
    s.toml:13: drives.volatile.faults: `write-eio` has keys of its own; write `{ write-eio = { ... } }`
    s.toml:13: drives.volatile.faults.shorn: `shorn` has no keys; write "shorn" alone
    s.toml:13: drives.volatile.faults is a table of 2 keys; it must be a name, or a table of exactly one key; separate several by commas in the array
    s.toml:13: drives.volatile.faults is the text "shorn"; it must be an array, `[...]`
    s.toml:1: schema: 2 is not known; this version reads schema = 1
    s.toml:1: schema is the text "1"; it must be 1, without quotes
    s.toml:1: schema: -1 is not known; this version reads schema = 1
    "#);
}

#[test]
fn what_is_not_toml_names_its_line() {
    insta::assert_snapshot!(messages(&[
        ("schema = 1", "schema 1"),
        ("schema = 1", "schema = "),
        ("name = \"base\"", "name = base"),
        ("name = \"base\"", "name = \"base"),
        ("[matrix]", "[matrix"),
        ("stacks = [\"safe\"]", "stacks = [\"safe\""),
        ("stacks = [\"safe\"]", "stacks = [\n  \"safe\"\n  # the other\n  \"other\",\n]"),
        ("cache = \"volatile\"", "cache = \"volatile\"\nservice = { write_us = 1"),
        ("[stacks.safe]", "[stacks.my stack]"),
        ("schema = 1", "schema = 1\nstacks = []"),
        ("schema = 1", "schema = 1\nseed = 0x"),
        ("schema = 1", "schema = 1\r# x"),
    ]), @r#"
    s.toml:1: not valid TOML: key with no value, expected `=`
    s.toml:1: not valid TOML: string values must be quoted, expected literal string
    s.toml:2: not valid TOML: string values must be quoted, expected literal string
    s.toml:2: not valid TOML: invalid basic string, expected `"`
    s.toml:14: not valid TOML: unclosed table, expected `]`
    s.toml:15: not valid TOML: missing comma between array elements, expected `,`
    s.toml:16: not valid TOML: missing comma between array elements, expected `,`
    s.toml:13: not valid TOML: missing key for inline table element, expected `,`
    s.toml:7: not valid TOML: unclosed table, expected `]`
    s.toml:8: not valid TOML: cannot extend value of type array with a dotted key
    s.toml:2: seed: 0x is no integer of 64 bits, so it is no count and no size
    s.toml:1: not valid TOML: carriage return must be followed by newline, expected newline
    "#);
    let deep = format!("{BASE}\n{}a = 1", "a.".repeat(100_000));
    insta::assert_snapshot!(message_of(&deep), @"s.toml:18: not valid TOML: recursion limit");
    let nested = format!("{BASE}\nx = {}", "[".repeat(100_000));
    insta::assert_snapshot!(message_of(&nested), @"s.toml:18: not valid TOML: more than 16 brackets open at once; close the earlier ones");
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    // The parser bounds the parts of a key and the nesting of braces, each by itself: 79 of both
    // would overflow its stack.
    let key = format!("{}a", "a.".repeat(78));
    for depth in [1, 15, 16, 17, 79] {
        let text = format!(
            "{BASE}\n[stacks.other]\nx = {}1{}",
            format!("{{ {key} = ").repeat(depth),
            " }".repeat(depth)
        );
        assert!(message_of(&text).starts_with("s.toml:"), "{depth}");
    }
}

#[test]
fn every_damaged_quickstart_is_read_or_refused_in_one_line_that_exists() {
    let lines = QUICKSTART.lines().count();
    let mut refused = 0;
    let mut check_one = |text: &str| {
        let Err(error) = check(text) else { return };
        let message = error.to_string();
        assert!(!message.contains('\n'), "one line: {message:?}");
        let line: usize = message
            .strip_prefix("s.toml:")
            .and_then(|rest| rest.split(':').next()?.parse().ok())
            .unwrap_or_else(|| panic!("no line in {message:?}"));
        assert!((1..=lines + 1).contains(&line), "{message}");
        refused += 1;
    };
    for (at, c) in QUICKSTART.char_indices() {
        let (before, after) = (&QUICKSTART[..at], &QUICKSTART[at + c.len_utf8()..]);
        check_one(before);
        check_one(&[before, after].concat());
        for other in ["\"", "[", "\n"] {
            check_one(&[before, other, after].concat());
        }
    }
    assert!(refused > 5_000, "only {refused} were refused");
}

#[test]
fn lines_are_counted_with_crlf_and_a_byte_order_mark_too() {
    let text = format!(
        "\u{feff}{}",
        BASE.replace("cache", "cahce").replace('\n', "\r\n")
    );
    insta::assert_snapshot!(message_of(&text), @"s.toml:12: unknown key `cahce` in drives.volatile; did you mean `cache`?");
}

#[test]
fn a_long_value_is_cut_and_a_message_stays_one_line() {
    let long = "x".repeat(10_000);
    for text in [
        BASE.replace("\"volatile\"\n\n", &format!("\"{long}\"\n\n")),
        BASE.replace("cache =", &format!("{long} =")),
        BASE.replace("\"base\"", &format!("\"{long}\"")),
        BASE.replace("[\"safe\"]", &format!("[\"{long}\"]")),
        BASE.replace(
            "records_per_writer = 10",
            &format!("records_per_writer = {}", "9".repeat(10_000)),
        ),
        BASE.replace(
            "[stacks.safe]",
            &format!("[stacks.safe]\ndevice_bytes = \"{long}\""),
        ),
        BASE.replace(
            "[stacks.safe]",
            &format!("[stacks.{long}]\n[stacks.{long}]"),
        ),
        BASE.replace("schema = 1", &format!("schema = {long}")),
    ] {
        let message = message_of(&text);
        assert!(message.len() < 2_000, "{} bytes", message.len());
    }
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = |path: &Path| {
        let error = load(Some(path)).expect_err("refused");
        assert_eq!(error.exit(), Exit::Usage);
        error
            .to_string()
            .replace(&directory.path().display().to_string(), "DIR")
    };
    let file = directory.path().join("s.toml");
    insta::assert_snapshot!(said(&file), @"DIR/s.toml: cannot be read: No such file or directory; name a readable scenario file, or none to run the built-in quickstart");
    insta::assert_snapshot!(said(directory.path()), @"DIR: cannot be read: Is a directory; name a readable scenario file, or none to run the built-in quickstart");
    fs::write(&file, b"schema = 1\nname = \"caf\xe9\"\n").expect("written");
    insta::assert_snapshot!(said(&file), @"DIR/s.toml:2: not UTF-8 text; save the file as UTF-8");
    let bound = usize::try_from(MAX_SCENARIO_BYTES).expect("fits");
    let mut text = BASE.to_owned();
    text.push_str(&"#".repeat(bound + 1 - text.len()));
    fs::write(&file, &text).expect("written");
    insta::assert_snapshot!(said(&file), @"DIR/s.toml: larger than 1 MiB, the most that a scenario may have; is it a scenario?");
    // Exactly the bound is read.
    text.pop();
    fs::write(&file, &text).expect("written");
    assert_eq!(load(Some(&file)).expect("read").scenario.name, "base");
    // A device without an end is no reason to read on for ever.
    insta::assert_snapshot!(said(Path::new("/dev/zero")), @"/dev/zero: larger than 1 MiB, the most that a scenario may have; is it a scenario?");
    let odd = directory.path().join("a\nb.toml");
    insta::assert_snapshot!(said(&odd), @r#"DIR/a\nb.toml: cannot be read: No such file or directory; name a readable scenario file, or none to run the built-in quickstart"#);
}

#[test]
fn errors_of_the_plan_name_the_file_that_was_loaded() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.toml");
    fs::write(
        &file,
        BASE.replace(
            "cache = \"volatile\"",
            "cache = \"volatile\"\ncache_bytes = 0",
        ),
    )
    .expect("written");
    let loaded = load(Some(&file)).expect("read");
    let error = plan(&loaded, None).expect_err("no plan").to_string();
    assert_eq!(
        error,
        format!(
            "{}:13: drives.volatile.cache_bytes: a cache of 0 bytes is `cache = \"none\"`",
            file.display()
        )
    );
}

#[test]
fn the_seed_of_the_command_line_wins_and_the_same_seed_gives_the_same_bytes() {
    let loaded = load(None).expect("built in");
    let own = plan(&loaded, None).expect("a plan");
    assert_eq!(own.seed, Seed(1));
    assert_eq!(
        own.to_json(),
        plan(&loaded, Some(Seed(1))).expect("a plan").to_json()
    );
    let other = plan(&loaded, Some(Seed(7))).expect("a plan");
    assert_eq!(other.seed, Seed(7));
    assert_ne!(own.to_json(), other.to_json());
}

#[test]
fn the_quickstart_holds_the_stacks_drives_and_cells_it_promises() {
    let loaded = load(None).expect("built in");
    assert_eq!(loaded.origin, Origin::BuiltIn);
    assert_eq!(loaded.text, QUICKSTART);
    let scenario = &loaded.scenario;
    assert_eq!(scenario.name, "quickstart");
    let plan = plan(&loaded, None).expect("a plan");
    let cells: Vec<String> = plan
        .cells
        .iter()
        .map(|cell| format!("{} {}", cell.id, cell.role.name()))
        .collect();
    insta::assert_snapshot!(cells.join("\n"), @r#"
    ext4-barrier@volatile subject
    ext4-nobarrier@volatile subject
    ext4-async-commit@volatile subject
    order-log-as-published@volatile subject
    raw-flush@volatile subject
    raw-noflush@volatile subject
    ext4-barrier@protected must-pass
    ext4-nobarrier@protected subject
    ext4-async-commit@protected subject
    order-log-as-published@protected subject
    raw-flush@protected subject
    raw-noflush@protected subject
    ext4-barrier@volatile-512 subject
    ext4-barrier@lying must-fail
    "#);

    let published = &scenario.stacks["order-log-as-published"];
    assert_eq!(
        published.mkfs.join(" "),
        "-E lazy_itable_init=0,lazy_journal_init=0 -O metadata_csum,64bit -b 4096 -I 256"
    );
    assert_eq!(
        published.mount,
        "noatime,nodiratime,commit=1,journal_async_commit,lazytime,discard=async"
    );
    for cell in &plan.cells {
        assert_eq!(cell.stack.device_bytes, 64 << 20, "{}", cell.id);
        let block = if cell.drive_name == "volatile-512" {
            512
        } else {
            4096
        };
        assert_eq!(cell.drive.logical_block_bytes, block, "{}", cell.id);
        assert_eq!(cell.drive.atomic_write_bytes, block, "{}", cell.id);
        let lies = cell.drive_name == "lying";
        assert_eq!(cell.drive.flush == Honesty::Ignored, lies, "{}", cell.id);
        assert_eq!(cell.drive.fua == Honesty::Ignored, lies, "{}", cell.id);
        let protected = cell.drive_name == "protected";
        assert_eq!(
            cell.drive.cache == Cache::Protected,
            protected,
            "{}",
            cell.id
        );
        assert_eq!(cell.workload.writers.len(), 2, "{}", cell.id);
        let acknowledge = match cell.stack_name.as_str() {
            "raw-flush" => Acknowledge::Flush,
            "raw-noflush" => Acknowledge::None,
            _ => Acknowledge::Fdatasync,
        };
        assert_eq!(cell.workload.acknowledge, acknowledge, "{}", cell.id);
        let raw = cell.stack_name.starts_with("raw-");
        assert_eq!(
            cell.stack.filesystem == Filesystem::None,
            raw,
            "{}",
            cell.id
        );
    }
    let role = |id: &str| plan.cell(id).map(|cell| cell.role);
    assert_eq!(role("ext4-barrier@lying"), Some(Role::MustFail));
    assert_eq!(role("ext4-barrier@protected"), Some(Role::MustPass));
    assert_eq!(role("ext4-barrier@volatile-512"), Some(Role::Subject));
}
