//! Progress on standard error: only on a terminal, quiet when piped.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plugpull_model::verdict::Verdict;

use crate::judge::explore::Progress;
use crate::runner::Show;

/// A bar for the cell that is being worked on.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    cell: String,
    first: Option<u64>,
    images: u64,
}

impl Bar {
    /// On standard error when that is a terminal and `quiet` is not set.
    #[must_use]
    pub fn new(quiet: bool) -> Bar {
        let shown = std::io::stderr().is_terminal() && !quiet;
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        if shown {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Bar {
            bar,
            cell: String::new(),
            first: None,
            images: 0,
        }
    }

    /// One line of the terminal's width, whatever it is.
    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }
}

impl Show for Bar {
    fn recording(&mut self, cell: &str, index: usize, cells: usize) {
        self.cell = format!("[{}/{cells}] {cell}", index + 1);
        self.first = None;
        self.style("{spinner} {wide_msg}");
        self.bar.set_message(format!("{}: recording", self.cell));
    }

    fn judging(&mut self, _cell: &str, progress: Progress) {
        if self.first.is_none() {
            self.style("{spinner} {pos}/{len} cuts, {eta} left  {wide_msg}");
            self.bar.reset();
        }
        let first = *self.first.get_or_insert(progress.position);
        self.bar.set_length(progress.last.saturating_sub(first) + 1);
        self.bar
            .set_position(progress.position.saturating_sub(first) + 1);
        if progress.images != self.images || progress.position == first {
            self.images = progress.images;
            let seconds = self.bar.elapsed().as_secs_f64().max(0.001);
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = progress.images as f64 / seconds;
            self.bar.set_message(format!(
                "{}: {rate:.0} images/s, findings: {}",
                self.cell, progress.findings
            ));
        }
    }

    fn ended(&mut self, _cell: &str, _verdict: &Verdict) {
        self.bar.set_message(String::new());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
