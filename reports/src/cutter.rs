//! What each cutter loses and does not lose, for the report to repeat.

/// One cutter's documentation.
pub(crate) struct Cutter {
    pub(crate) loses: &'static str,
    pub(crate) does_not_lose: &'static str,
    pub(crate) confirms_by: &'static str,
    pub(crate) needs: &'static str,
}

/// The documentation of a cutter by name, where this version has it.
pub(crate) fn cutter(name: &str) -> Option<Cutter> {
    match name {
        "simulated" => Some(Cutter {
            loses: "the dirty page cache; of what the drive had in its cache or in flight, any \
                    legal subset for the drive as configured; commands that are not atomic on \
                    this drive may be torn at every logical block",
            does_not_lose: "what the drive's contract makes durable: on a volatile drive, writes \
                            that completed before a flush arrived and that flush completed, and \
                            completed FUA writes; on a protected drive or one without a cache, \
                            every completed write",
            confirms_by: "nothing to confirm: the crash image is built from the recorded write \
                          log, so it holds exactly what it is said to hold",
            needs: "no hardware; root, FUSE and loop devices for stacks with a file system",
        }),
        _ => None,
    }
}

/// What a run without findings does not say.
pub(crate) const GREEN_DOES_NOT_MEAN: [&str; 5] = [
    "that the real drive keeps what it promises: a simulated drive loses what its settings allow, \
     and a real one may do worse",
    "that what was not exercised is safe: only the commands, the depth and the file system \
     activity that these recordings hold were cut",
    "that every crash state was looked at, unless the cell says exhaustive; a sampled cell says \
     how many of how many",
    "that other kernels, mount options, mkfs options, file sizes or workloads behave alike",
    "how likely a loss is: crash states of one recording are coverage, not independent power cuts",
];
