//! The record of a lock site in the program: a static of flat bytes in a separate section.

use crate::args::Args;
use crate::args::choice::{Isolation, mode};
use crate::args::duration::{Duration, Wait};
use crate::collisions;
use crate::errors::Errors;
use crate::site_facts::SiteFacts;
use crate::tokens::hygienic;
use advisory_pattern::{MODULE_PATH, Record, encode_key};
use proc_macro2::{Literal, Span, TokenStream, TokenTree};
use syn::LitStr;

/// In characters: the purpose has to fit a table's cell, and a record's length is limited.
const LONGEST_PURPOSE: usize = 500;

pub(crate) fn time(time: Option<&Duration>) -> Option<String> {
    time.map(|time| time.written.clone())
}

/// The item that stores the record of a site. Reports collisions unless another mistake was found.
pub(crate) fn emit(site: SiteFacts, args: &Args, errors: &mut Errors) -> TokenStream {
    if errors.is_empty() {
        collisions::check(&site, args, errors);
    }
    let (file, line) = place(site.span());
    let (written, keys) = site
        .keys
        .into_iter()
        .map(|known| (known.written, encode_key(known.key.as_ref())))
        .unzip();
    let text = |text: &Option<LitStr>| text.as_ref().map(LitStr::value);
    let record = Record {
        kind: site.kind.name().to_owned(),
        name: args.name(),
        component: text(&args.component),
        purpose: site.purpose,
        written,
        keys,
        with: site.with,
        derivation: args.derivation().name().to_owned(),
        scope: site.kind.scope().to_owned(),
        mode: mode(args.is_shared()).to_owned(),
        wait: args.wait.as_ref().map(Wait::written).map(str::to_owned),
        poll: time(args.poll.as_ref()),
        permits: args.permits(),
        max_hold: time(args.max_hold.as_ref()),
        isolation: args.isolation.map(Isolation::name).map(str::to_owned),
        ttl: time(args.ttl.as_ref()),
        renew: time(args.renew.as_ref()),
        keep: time(args.keep.as_ref()),
        allow_overlap: args
            .allow_overlap
            .iter()
            .map(|(other, why)| (other.value(), why.value()))
            .collect(),
        guards: args.guards.clone().unwrap_or_default(),
        allow_ambiguous: text(&args.allow_ambiguous),
        allow_redundant: text(&args.allow_redundant),
        module: MODULE_PATH.to_owned(),
        function: site.name,
        file,
        line,
        krate: env("CARGO_PKG_NAME"),
        version: env("CARGO_PKG_VERSION"),
    };
    let encoded = record.encode();
    let krate = args.runtime();
    // Only the compiler knows the module that contains the item.
    let (before, after) = encoded.split_once(MODULE_PATH).unwrap_or((&encoded, ""));
    let rest = Literal::usize_unsuffixed(before.len() + after.len());
    hygienic!(#krate::__private::record!(#rest #before #after);)
}

/// Leaves the purpose and the place out of each record.
const IS_SLIM: bool = cfg!(feature = "slim-inventory");

/// The first line of the doc comment among a function's or a type's attributes.
pub(crate) fn purpose(head: &TokenStream) -> Option<String> {
    if IS_SLIM {
        return None;
    }
    let mut tokens = head.clone().into_iter();
    while let Some(token) = tokens.next() {
        let TokenTree::Punct(punct) = &token else {
            return None;
        };
        let Some(TokenTree::Group(attribute)) = (punct.as_char() == '#').then(|| tokens.next())?
        else {
            return None;
        };
        let mut content = attribute.stream().into_iter();
        let is_doc = matches!(content.next(), Some(TokenTree::Ident(name)) if name == "doc");
        if is_doc && let Ok(line) = syn::parse2::<LitStr>(content.skip(1).collect()) {
            let text = line.value();
            if let Some(first) = text.lines().map(str::trim).find(|line| !line.is_empty()) {
                return Some(first.chars().take(LONGEST_PURPOSE).collect());
            }
        }
    }
    None
}

/// The file, relative to its crate's manifest or to the build script's output, and the line. The
/// compiler's own name for the file can be remapped, and would differ from build to build.
pub(crate) fn place(span: Span) -> (String, u32) {
    // A unit test of the macro runs outside of the compiler.
    if IS_SLIM || !proc_macro::is_available() {
        return (String::new(), 0);
    }
    let span = span.unwrap();
    let file = span.local_file().unwrap_or_default();
    let absolute = std::env::current_dir().unwrap_or_default().join(file);
    let under = |base: &str| {
        let base = std::env::var_os(base).filter(|base| !base.is_empty())?;
        absolute
            .strip_prefix(base)
            .ok()
            .map(|path| path.display().to_string())
    };
    let file = under("CARGO_MANIFEST_DIR")
        .or_else(|| Some(format!("$OUT_DIR/{}", under("OUT_DIR")?)))
        .unwrap_or_else(|| span.file());
    (
        file.replace('\\', "/"),
        u32::try_from(span.line()).unwrap_or(0),
    )
}

pub(crate) fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::env;
    use crate::written::records;

    /// Compares the fields of each record; a blank line is between two records.
    fn assert_records(source: &str, wanted: &str) {
        let (name, version) = (env("CARGO_PKG_NAME"), env("CARGO_PKG_VERSION"));
        let place = format!("module=app file= line=0 crate={name} version={version}");
        let fields = |text: &str| {
            let fields = text.split('\u{1f}').skip(2);
            let own = fields.filter(|field| !place.split(' ').any(|known| known == *field));
            own.collect::<Vec<_>>().join(" | ").replace('\u{1c}', ", ")
        };
        let found = records(source).into_iter().map(|record| record.encode());
        let found = found.map(|text| fields(text.trim_end_matches('\u{1d}')));
        let wanted = wanted.split("\n\n").map(|record| {
            let lines: Vec<_> = record.trim().lines().map(str::trim).collect();
            lines.join(" | ")
        });
        assert_eq!(found.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    }

    #[test]
    fn a_lock_records_what_it_says() {
        assert_records(
            r#"
            ///
            #[must_use]
            /// Cleans a room.
            /// Once a day.
            #[advisory_lock(key = "room:<id>:<day>", with(day = now.date()), name = "room", component = "lets", scope = "session",
                mode = "shared", wait = "5s", poll = "50ms", max_hold = "1m", derivation = "md5",
                allow_overlap("hall", "one of them"), allow_overlap("*", "any"))]
            async fn clean(conn: &mut AsyncPgConnection, id: i64, now: Now) -> QueryResult<()> { Ok(()) }
            "#,
            "
            kind=fn | written=room:<id>:<day> | keys=pattern room:<id: int>:<day: text>
            derivation=md5 | scope=session | mode=shared | function=clean | name=room
            component=lets | purpose=Cleans a room. | wait=5s | poll=50ms | max_hold=1m
            with=day, now . date () | allow_overlap=hall, one of them | allow_overlap=*, any
            ",
        );
    }

    #[test]
    fn a_lock_of_the_transaction_records_what_it_says() {
        assert_records(
            r#"
            #[advisory_lock(keys = [7, "<a><b>", (7, half), (7, HALF), (8), (-9), other(a)], isolation = "repeatable read",
                guards = "rooms, halls", allow_redundant = "the sum needs it", allow_ambiguous = "both are short")]
            async fn count(conn: &mut AsyncPgConnection, a: &str, b: &str, half: i32) -> QueryResult<()> { Ok(()) }
            #[advisory_lock(key = "slot", permits = 3, wait = "never")]
            async fn few(conn: &mut AsyncPgConnection) -> QueryResult<()> { Ok(()) }
            #[advisory_lock(key = "slot", name = "slots", permits = most, wait = "forever", poll = "1s")]
            async fn most(conn: &mut AsyncPgConnection, most: u32) -> QueryResult<()> { Ok(()) }
            "#,
            "
            kind=fn | written=7, <a><b>, (7 , half), (7 , HALF), (8), (- 9), other (a)
            keys=number 7, pattern <a: text><b: text>, number (7,?), ?, number 8, number -9, ?
            derivation=sha256 | scope=xact | mode=exclusive | function=count
            isolation=repeatable read | allow_ambiguous=both are short
            allow_redundant=the sum needs it | guards=rooms | guards=halls

            kind=fn | written=slot | keys=pattern slot | derivation=sha256 | scope=xact
            mode=exclusive | function=few | wait=never | permits=3

            kind=fn | written=slot | keys=pattern slot | derivation=sha256 | scope=xact
            mode=exclusive | function=most | name=slots | wait=forever | poll=1s | permits=most
            ",
        );
    }

    #[test]
    fn a_lease_and_a_declared_lock_record_what_they_say() {
        assert_records(
            r#"
            #[advisory_lease(key = "report:<day>", name = "report", wait = "1s", ttl = "60s", renew = "20s", keep = "24h",
                on_done = Ok(()), pool = pool)]
            async fn send(pool: &Pool, day: Date) -> Result<(), Error> { Ok(()) }

            /// An account.
            #[derive(LockKey)]
            #[lock_key("account:<id>", guards = "accounts", allow_redundant = "triggers are off", name = "account")]
            struct AccountLock { id: i64 }

            fn key(a: i64) -> Key { lock_key!("<a><b>", derivation = "md5", allow_ambiguous = "both are short", component = "lets") }
            "#,
            "
            kind=fn | written=report:<day> | keys=pattern report:<day: date> | derivation=sha256
            scope=lease | mode=exclusive | function=send | name=report | wait=1s | ttl=60s
            renew=20s | keep=24h

            kind=struct | written=account:<id> | keys=pattern account:<id: int> | derivation=sha256
            scope=none | mode=exclusive | function=AccountLock | name=account | purpose=An account.
            allow_redundant=triggers are off | guards=accounts

            kind=macro | written=<a><b> | keys=pattern <a: text><b: text> | derivation=md5
            scope=none | mode=exclusive | function=lock_key! | component=lets
            allow_ambiguous=both are short
            ",
        );
    }
}
