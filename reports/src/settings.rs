//! What a cell was planned with and what the run ran on, for the page.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use plugpull_model::drive::{DriveSettings, Honesty, PlantedFault, WriteCacheReported};
use plugpull_model::plan::PlannedCell;
use plugpull_model::stack::{Filesystem, RecoveryStep, Stack};
use plugpull_model::workload::PlannedWorkload;

use crate::words::{command, fault_in_words, size, spelled};

/// Writers that the page lists one by one.
const WRITERS_SHOWN: usize = 8;

/// The facts of the machine; a column for each machine the run ran on.
pub(crate) fn environment(environments: &[BTreeMap<String, String>]) -> Markup {
    let names: BTreeSet<&str> = environments
        .iter()
        .flat_map(|facts| facts.keys().map(String::as_str))
        .collect();
    html! {
        h2 { "Environment" }
        @if names.is_empty() {
            p { "The events do not tell what the run ran on." }
        } @else {
            @if environments.len() > 1 {
                p.inconclusive {
                    "The run was resumed in another environment. The first column is where it began."
                }
            }
            div.wide {
                table {
                    tbody {
                        @for name in names {
                            tr {
                                th scope="row" { (name) }
                                @for facts in environments {
                                    td { (facts.get(name).map_or("-", String::as_str)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Options that a line may break after each comma.
pub(crate) fn breakable(options: &str) -> Markup {
    html! {
        @for (place, option) in options.split_inclusive(',').enumerate() {
            @if place > 0 { wbr; }
            (option)
        }
    }
}

/// Drive, stack and workload side by side.
pub(crate) fn planned(planned: &PlannedCell) -> Markup {
    html! {
        div.settings {
            (drive(&planned.drive_name, &planned.drive, planned))
            (stack(&planned.stack_name, &planned.stack))
            (workload(&planned.workload))
        }
    }
}

/// The planted faults of a drive, one an item.
pub(crate) fn fault_list(faults: &[PlantedFault]) -> Markup {
    html! {
        ul.plain { @for fault in faults { li { (fault_in_words(fault)) } } }
    }
}

fn drive(name: &str, drive: &DriveSettings, planned: &PlannedCell) -> Markup {
    let reported = match drive.write_cache_reported {
        WriteCacheReported::Back => "write back",
        WriteCacheReported::Through => "write through",
    };
    let boundary = match drive.atomic_boundary_bytes {
        0 => "none".to_owned(),
        bytes => size(u64::from(bytes)),
    };
    let honesty = |honesty: &Honesty| {
        html! {
            @match honesty {
                Honesty::Honoured => "honoured",
                Honesty::Ignored => strong.inconclusive { "ignored" },
            }
        }
    };
    html! {
        div {
            h4 { "Drive " (name) }
            dl {
                dt { "cache" } dd { (spelled(&drive.cache)) }
                dt { "cache size" }
                dd { @match drive.cache_bytes { Some(bytes) => (size(bytes)), None => "no limit" } }
                dt { "cache reported" } dd { (reported) }
                dt { "flush" } dd { (honesty(&drive.flush)) }
                dt { "FUA" } dd { (honesty(&drive.fua)) }
                dt { "logical block" } dd { (size(u64::from(drive.logical_block_bytes))) }
                dt { "atomic write" } dd { (size(u64::from(drive.atomic_write_bytes))) }
                dt { "atomic boundary" } dd { (boundary) }
                dt { "survivors" } dd { (spelled(&drive.survivors)) }
                dt { "in flight" } dd { (spelled(&drive.in_flight)) }
                dt { "discard reads" } dd { (spelled(&drive.discard_reads)) }
                dt { "service times" }
                dd { "write " (drive.service.write_us) " us, flush " (drive.service.flush_us) " us" }
                dt { "planted faults" }
                @if drive.faults.is_empty() {
                    dd { "none" }
                } @else {
                    dd { (fault_list(&drive.faults)) }
                    dt { "faults seed" } dd { (planned.faults_seed.0) }
                }
            }
        }
    }
}

fn stack(name: &str, stack: &Stack) -> Markup {
    html! {
        div {
            h4 { "Stack " (name) }
            dl {
                dt { "file system" } dd { (stack.filesystem.name()) }
                dt { "device" } dd { (size(stack.device_bytes)) }
                @if stack.filesystem != Filesystem::None {
                    dt { "made by" }
                    dd { code { "mkfs." (stack.filesystem.name()) " -q " (breakable(&command(&stack.mkfs))) " DEVICE" } }
                    dt { "mounted with" }
                    dd { @if stack.mount.is_empty() { "no options" } @else { code { (breakable(&stack.mount)) } } }
                    dt { "recovered by" }
                    dd {
                        @for (place, step) in stack.recovery.iter().enumerate() {
                            @if place > 0 { ", then " }
                            @match step {
                                RecoveryStep::Mount => code { "mount" },
                                RecoveryStep::Command(words) => code { (command(words)) " DEVICE" },
                            }
                        }
                    }
                }
            }
        }
    }
}

fn workload(workload: &PlannedWorkload) -> Markup {
    let more = workload.writers.len().saturating_sub(WRITERS_SHOWN);
    html! {
        div {
            h4 { "Workload append-log" }
            dl {
                dt { "records" }
                dd { (workload.records()) " of " (size(u64::from(workload.record_bytes))) }
                dt { "acknowledged by" } dd { (spelled(&workload.acknowledge)) }
                dt { "file" } dd { (spelled(&workload.file)) }
                dt { "direct I/O" } dd { @if workload.direct { "yes" } @else { "no" } }
                dt { "pause" } dd { (workload.pause_us) " us" }
                dt { "writers" }
                dd {
                    ul.plain {
                        @for writer in workload.writers.iter().take(WRITERS_SHOWN) {
                            li {
                                (writer.stream) ": " (writer.records) " records to " (writer.object)
                                " from byte " (writer.first_address.0)
                            }
                        }
                        @if more > 0 { li { (more) " more" } }
                    }
                }
            }
        }
    }
}
