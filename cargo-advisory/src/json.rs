//! An inventory as JSON, written and read.
//!
//! `docs/json.md` documents the schema. The reader refuses a newer version and skips unknown
//! members.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use advisory_pattern::{ClaimRecord, Derivation, LockedKey, MOST_PERMITS, Permits, Record};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::inventory::{Inventory, Key, is_lease, keys};
use crate::text::controls_terminal;

pub(crate) const VERSION: u64 = 1;

pub(crate) fn write(inventory: &Inventory) -> String {
    let sites: Vec<Value> = inventory.sites.iter().map(site).collect();
    let claims: Vec<Value> = inventory.claims.iter().map(claim).collect();
    pretty(&json!({ "version": VERSION, "sites": sites, "claims": claims }))
}

pub(crate) fn pretty(value: &Value) -> String {
    visible(&format!("{value:#}\n"))
}

pub(crate) fn line(value: &Value) -> String {
    visible(&format!("{value}\n"))
}

/// Escapes characters that control a terminal. JSON requires this only of the first 32 control
/// characters.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter != '\n' && controls_terminal(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(visible, "\\u{unit:04x}");
            }
        } else {
            visible.push(letter);
        }
    }
    visible
}

fn pairs_value(pairs: &[(String, String)], [first, second]: [&str; 2]) -> Value {
    let pairs = pairs.iter();
    pairs
        .map(|(one, other)| json!({ first: one, second: other }))
        .collect()
}

pub(crate) fn site(site: &Record) -> Value {
    let keys = keys(site);
    let first = keys.first();
    // Neither a number nor a lease's text has a derivation.
    let is_derived = !is_lease(site) && keys.iter().any(Key::is_derived);
    let permits = site.permits.as_ref().map(|permits| match permits {
        Permits::Number(number) => json!(number),
        Permits::Expression(expression) => json!(expression),
    });
    json!({
        "name": site.name,
        "pattern": first.filter(|key| key.is_derived()).map(|key| key.written),
        "number": first.and_then(Key::number),
        "key_space": first.and_then(Key::space),
        "derivation": is_derived.then_some(&site.derivation),
        "scope": site.scope,
        "mode": site.mode,
        "wait": site.wait,
        "poll": site.poll,
        "permits": permits,
        "max_hold": site.max_hold,
        "isolation": site.isolation,
        "ttl": site.ttl,
        "renew": site.renew,
        "keep": site.keep,
        "component": site.component,
        "purpose": site.purpose,
        "kind": site.kind,
        "module": site.module,
        "function": site.function,
        "file": site.file,
        "line": site.line,
        "crate": site.krate,
        "crate_version": site.version,
        "keys": keys.iter().map(key).collect::<Vec<_>>(),
        "with": pairs_value(&site.with, ["placeholder", "value"]),
        "guards": site.guards,
        "allow_overlap": pairs_value(&site.allow_overlap, ["name", "reason"]),
        "allow_ambiguous": site.allow_ambiguous,
        "allow_redundant": site.allow_redundant,
    })
}

pub(crate) fn claim(claim: &ClaimRecord) -> Value {
    json!({
        "table": claim.table,
        "columns": pairs_value(&claim.columns, ["argument", "column"]),
        "deletes": claim.deletes,
        "key": claim.key,
        "order": pairs_value(&claim.order, ["column", "direction"]),
        "ttl": claim.ttl,
        "renew": claim.renew,
        "limit": claim.limit,
        "max_attempts": claim.max_attempts,
        "purpose": claim.purpose,
        "module": claim.module,
        "row": claim.row,
        "file": claim.file,
        "line": claim.line,
        "crate": claim.krate,
        "crate_version": claim.version,
    })
}

fn key(key: &Key<'_>) -> Value {
    let (shaped, second) = match &key.known {
        Some(LockedKey::Pattern(pattern)) => (Some(pattern.to_string()), None),
        Some(LockedKey::IntPattern(_, pattern)) => (None, Some(pattern.to_string())),
        Some(LockedKey::BigInt(_) | LockedKey::IntInt(..)) | None => (None, None),
    };
    json!({
        "written": key.written,
        "shaped": shaped,
        "number": key.number(),
        "pair": key.pair(),
        "second": second,
        "key_space": key.space(),
    })
}

pub(crate) fn read_files(paths: &[PathBuf]) -> Result<Inventory> {
    let mut paths = paths.iter();
    paths.try_fold(Inventory::default(), |all, path| {
        Ok(all.and(read_file(path)?))
    })
}

pub(crate) fn read_file(path: &Path) -> Result<Inventory> {
    let text = fs::read_to_string(path).map_err(|error| Failure::unread(path, error))?;
    read(path, &text)
}

/// Reads what [`write()`] writes; `path` is for messages.
pub(crate) fn read(path: &Path, text: &str) -> Result<Inventory> {
    parsed(text).map_err(|why| Failure::file(path, why))
}

fn parsed(text: &str) -> Result<Inventory, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        format!("not an inventory of `cargo advisory dump --format json`: {error}")
    })?;
    let version = value["version"].as_u64();
    let version = version.ok_or("not an inventory: `version` is not a number")?;
    if version > VERSION {
        return Err(format!(
            "the inventory has version {version}, and this command reads up to {VERSION}: update `cargo-advisory`"
        ));
    }
    let sites = value["sites"].as_array();
    let sites = sites.ok_or("not an inventory: `sites` is not an array")?;
    let mut inventory = Inventory::default();
    for (at, value) in sites.iter().enumerate() {
        let site = record(value).map_err(|why| format!("sites[{at}]: {why}"))?;
        let locks = site.locks();
        locks.map_err(|error| format!("sites[{at}]: {error}"))?;
        inventory.sites.push(site);
    }
    // An inventory of an earlier release has none.
    for (at, value) in value["claims"].as_array().into_iter().flatten().enumerate() {
        let claim = claim_record(value).map_err(|why| format!("claims[{at}]: {why}"))?;
        inventory.claims.push(claim);
    }
    Ok(inventory.sorted())
}

fn line_number(object: &Value) -> Result<u32, &'static str> {
    let line = match &object["line"] {
        Value::Null => Some(0),
        line => line.as_u64().and_then(|line| u32::try_from(line).ok()),
    };
    line.ok_or("`line` is not a line number")
}

fn claim_record(claim: &Value) -> Result<ClaimRecord, String> {
    claim.as_object().ok_or("not an object")?;
    claim["columns"]
        .as_array()
        .ok_or("`columns` is not an array")?;
    Ok(ClaimRecord {
        table: text(claim, "table")?.ok_or("`table` is missing")?,
        columns: pairs(claim, "columns", ["argument", "column"])?,
        deletes: texts(claim, "deletes")?,
        key: texts(claim, "key")?,
        order: pairs(claim, "order", ["column", "direction"])?,
        ttl: text(claim, "ttl")?,
        renew: text(claim, "renew")?,
        limit: text(claim, "limit")?,
        max_attempts: text(claim, "max_attempts")?,
        purpose: text(claim, "purpose")?,
        module: text(claim, "module")?.unwrap_or_default(),
        row: text(claim, "row")?.ok_or("`row` is missing")?,
        file: text(claim, "file")?.unwrap_or_default(),
        line: line_number(claim)?,
        krate: text(claim, "crate")?.ok_or("`crate` is missing")?,
        version: text(claim, "crate_version")?.unwrap_or_default(),
    })
}

fn record(site: &Value) -> Result<Record, String> {
    site.as_object().ok_or("not an object")?;
    let permits = match &site["permits"] {
        Value::Null => Some(None),
        Value::String(text) => Permits::parse(&text.replace(char::is_control, " ")).map(Some),
        permits => Permits::parse(&permits.to_string())
            .filter(|permits| matches!(permits, Permits::Number(_)))
            .map(Some),
    };
    let listed = site["keys"].as_array();
    let (mut written, mut keys) = (Vec::new(), Vec::new());
    for key in listed.ok_or("`keys` is not an array")? {
        key.as_object().ok_or("`keys` does not contain objects")?;
        let encoded = encoded_key(key)?;
        written.push(text(key, "written")?.unwrap_or_else(|| encoded.clone()));
        keys.push(encoded);
    }
    Ok(Record {
        written,
        keys,
        kind: text(site, "kind")?.unwrap_or_else(|| "fn".to_owned()),
        name: text(site, "name")?,
        component: text(site, "component")?,
        purpose: text(site, "purpose")?,
        derivation: text(site, "derivation")?
            .unwrap_or_else(|| Derivation::default().name().to_owned()),
        scope: text(site, "scope")?.unwrap_or_default(),
        mode: text(site, "mode")?.unwrap_or_default(),
        wait: text(site, "wait")?,
        poll: text(site, "poll")?,
        permits: permits.ok_or_else(|| {
            format!("`permits` is neither a number from 1 to {MOST_PERMITS} nor an expression")
        })?,
        max_hold: text(site, "max_hold")?,
        isolation: text(site, "isolation")?,
        ttl: text(site, "ttl")?,
        renew: text(site, "renew")?,
        keep: text(site, "keep")?,
        allow_ambiguous: text(site, "allow_ambiguous")?,
        allow_redundant: text(site, "allow_redundant")?,
        module: text(site, "module")?.unwrap_or_default(),
        function: text(site, "function")?.ok_or("`function` is missing")?,
        file: text(site, "file")?.unwrap_or_default(),
        line: line_number(site)?,
        krate: text(site, "crate")?.ok_or("`crate` is missing")?,
        version: text(site, "crate_version")?.unwrap_or_default(),
        with: pairs(site, "with", ["placeholder", "value"])?,
        guards: texts(site, "guards")?,
        allow_overlap: pairs(site, "allow_overlap", ["name", "reason"])?,
    })
}

/// The pairs of texts in an array of objects; none if an earlier release has not written the array.
fn pairs(
    object: &Value,
    member: &str,
    [first, second]: [&str; 2],
) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &Value| {
        let error = || format!("`{member}` does not contain objects");
        pair.as_object().ok_or_else(error)?;
        let text = |member| text(pair, member).map(Option::unwrap_or_default);
        Ok((text(first)?, text(second)?))
    };
    let list = object[member].as_array();
    list.into_iter().flatten().map(pair).collect()
}

/// The key in the form of a record.
fn encoded_key(key: &Value) -> Result<String, String> {
    if let Some(shaped) = text(key, "shaped")? {
        return Ok(format!("pattern {shaped}"));
    }
    if let Some(second) = text(key, "second")? {
        let first = key["pair"][0].as_i64();
        let first = first.ok_or("`second` has no first half in `pair`")?;
        return Ok(format!("half {first} {second}"));
    }
    let half = |half: &Value| match half {
        Value::Null => Ok("?".to_owned()),
        half => {
            let number = half.as_i64().ok_or("`pair` does not contain integers");
            number.map(|number| number.to_string())
        }
    };
    match (&key["pair"], &key["number"]) {
        (Value::Array(pair), _) => {
            let halves: Result<Vec<String>, &str> = pair.iter().map(half).collect();
            Ok(format!("number ({})", halves?.join(",")))
        }
        (Value::Null, number @ Value::Number(_)) => Ok(format!("number {number}")),
        (Value::Null, Value::Null) => Ok("?".to_owned()),
        (Value::Null, _) => Err("`number` is not a number".to_owned()),
        _ => Err("`pair` is not an array".to_owned()),
    }
}

fn texts(object: &Value, member: &str) -> Result<Vec<String>, String> {
    let list = object[member].as_array();
    let texts = list.into_iter().flatten().map(|value| match value {
        Value::String(text) => Ok(text.replace(char::is_control, " ")),
        _ => Err(format!("`{member}` does not contain strings")),
    });
    texts.collect()
}

fn text(object: &Value, member: &str) -> Result<Option<String>, String> {
    match &object[member] {
        Value::Null => Ok(None),
        // Escaped as in a record, because a terminal can get it.
        Value::String(text) => Ok(Some(text.replace(char::is_control, " "))),
        _ => Err(format!("`{member}` is not a string")),
    }
}
