//! Mistakes in the arguments of a lock that several may hold at once.

use crate::args::Args;
use crate::args::duration::Wait;
use crate::errors::Errors;
use crate::function::{Function, mentions};
use crate::key_pattern::KeyPattern;
use crate::site::keys::{SiteKey, SiteKeys};

/// Checks that `permits` comes with one key, and with a wait that asks for each of them.
pub(crate) fn check(args: &Args, keys: &SiteKeys, function: &Function, errors: &mut Errors) {
    let Some(span) = args.span("permits") else {
        return;
    };
    if !args.has("poll") && !matches!(args.wait, Some(Wait::Never)) {
        let wanted = "a session cannot wait at the server for several permits at once: write \
                      `wait = \"never\"`, or add `poll = \"250ms\"`";
        errors.at(span, wanted);
    }
    if args.has("keys") {
        errors.at(span, "`permits` needs a single key: write `key = …`");
    } else if let Some(slice) = keys.patterns().find_map(KeyPattern::slice) {
        let wanted = format_args!(
            "`permits` needs a single key, and `<{}>` gives several: name a single value",
            slice.source
        );
        errors.at(span, wanted);
    }
    if let Some(mode) = args.span("mode").filter(|_| args.is_shared()) {
        errors.at(
            mode,
            "a permit has one holder: leave `mode = \"shared\"` out",
        );
    }
    let unfit = [
        (
            "at",
            "a permit is taken at the node of the connection: leave `at` out",
        ),
        (
            "queue",
            "`queue` admits one call at a time, and `permits` several: leave `queue` out",
        ),
        (
            "guards",
            "holders of other permits can write to the table too: leave `guards` out",
        ),
    ];
    args.refuse(&unfit, errors);
    let is_declared = keys
        .list
        .iter()
        .any(|key| !matches!(key, SiteKey::Pattern(_)));
    if let Some(handle) = &args.handle
        && is_declared
        && mentions(&function.body.stream(), "holding")
    {
        let wanted = format_args!(
            "a permit is not exclusive, so `{handle}` has no `holding`: leave `permits` out, or call \
             a function that needs no witness"
        );
        errors.at(handle.span(), wanted);
    }
}
