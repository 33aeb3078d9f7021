//! Mistakes in the arguments of a lock that several may hold at once.

use super::keys::{SiteKey, SiteKeys};
use crate::args::Args;
use crate::args::duration::Wait;
use crate::errors::Errors;
use crate::function::{Function, mentions};
use crate::key_pattern::KeyPattern;

/// Checks that `permits` comes with one key, and with a wait that asks for each of them.
pub(crate) fn check(args: &Args, keys: &SiteKeys, function: &Function, errors: &mut Errors) {
    let Some(span) = args.span("permits").filter(|_| !args.is_lease()) else {
        return;
    };
    if !args.has("poll") && !matches!(args.wait, Some(Wait::Never)) {
        let wanted = "each permit is a key of its own, and a session can wait at the server for one key at a time: write \
                      `wait = \"never\"`, or add `poll = \"250ms\"`";
        errors.at(span, wanted);
    }
    if args.has("keys") {
        errors.at(span, "`permits` is for one key: write `key = …`");
    } else if let Some(slice) = keys.patterns().find_map(KeyPattern::slice) {
        let wanted = format_args!(
            "`permits` is for one key, and `<{}>` is several: name a single value",
            slice.source
        );
        errors.at(span, wanted);
    }
    if let Some(mode) = args.span("mode").filter(|_| args.is_shared()) {
        errors.at(
            mode,
            "each permit is held by one: leave `mode = \"shared\"` out",
        );
    }
    let unfit = [
        (
            "queue",
            "`queue` lets one call of this process ask at a time, and `permits` are for several at once: leave `queue` out",
        ),
        (
            "guards",
            "a permit does not keep the others out of a table: leave `guards` out",
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
            "a permit is no proof that the lock is held by nobody else, so `{handle}` has no `holding`: leave `permits` out, or call \
             what needs no witness"
        );
        errors.at(handle.span(), wanted);
    }
}
