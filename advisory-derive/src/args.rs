//! The arguments of the macros, as they are written.

pub(crate) mod argument;
pub(crate) mod choice;
pub(crate) mod duration;
pub(crate) mod key;
pub(crate) mod value;

use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::mentions;
use crate::tokens::{is_punct, split_at_commas};
use advisory_pattern::{Derivation, Permits};
use argument::{Argument, Known, name_of, value_of};
use choice::{Isolation, Scope, mode, nested};
use duration::{Duration, KEEP, MAX_HOLD, POLL, POLL_MAX, RENEW, TTL, Wait, wait};
use key::{KeyArg, key, keys, lease_key, with};
use proc_macro2::{Ident, Spacing, Span, TokenStream, TokenTree};
use quote::quote;
use std::fmt::Display;
use syn::{LitInt, LitStr};
use value::{
    AtArg, at, conversion, ident, label, number, overlap, permits, reason, returned, string, tables,
};

/// The maximum number of locks of a call, by default: all sessions of the server share its lock
/// table.
const MAX_KEYS: usize = 64;

/// The arguments of a macro that has a key. `None` is "not given", and the only value of those that
/// the macro does not have.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) keys: Option<Vec<KeyArg>>,
    pub(crate) with: Option<Vec<(Ident, TokenStream)>>,
    pub(crate) name: Option<LitStr>,
    pub(crate) component: Option<LitStr>,
    /// The other lock's name and the reason, of each `allow_overlap`.
    pub(crate) allow_overlap: Vec<(LitStr, LitStr)>,
    pub(crate) allow_ambiguous: Option<LitStr>,
    pub(crate) derivation: Option<Derivation>,
    /// The tables that must only be written under the lock.
    pub(crate) guards: Option<Vec<String>>,
    /// The reason why their constraints do not replace the lock.
    pub(crate) allow_redundant: Option<LitStr>,
    pub(crate) pool: Option<TokenStream>,
    pub(crate) conn: Option<TokenStream>,
    pub(crate) wait: Option<Wait>,
    pub(crate) on_held: Option<TokenStream>,
    pub(crate) on_done: Option<TokenStream>,
    pub(crate) err: Option<TokenStream>,
    pub(crate) handle: Option<Ident>,
    scope: Option<Scope>,
    is_shared: Option<bool>,
    pub(crate) poll: Option<Duration>,
    pub(crate) poll_max: Option<Duration>,
    pub(crate) permits: Option<(Permits, TokenStream)>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) isolation: Option<Isolation>,
    /// The rows that decide at which node the lock is taken.
    pub(crate) at: Option<AtArg>,
    refuses_nested: Option<bool>,
    pub(crate) queue: Option<LitInt>,
    pub(crate) max_keys: Option<LitInt>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew: Option<Duration>,
    pub(crate) keep: Option<Duration>,
    krate: Option<TokenStream>,
    /// Every argument that was given, right or wrong.
    given: Vec<(String, Span)>,
}

impl Args {
    pub(crate) fn name(&self) -> Option<String> {
        self.name.as_ref().map(LitStr::value)
    }

    pub(crate) fn runtime(&self) -> TokenStream {
        runtime(self.krate.as_ref())
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope.unwrap_or_default()
    }

    pub(crate) fn is_session(&self) -> bool {
        self.scope() == Scope::Session
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared == Some(true)
    }

    pub(crate) fn refuses_nested(&self) -> bool {
        self.refuses_nested == Some(true)
    }

    pub(crate) fn permits(&self) -> Option<Permits> {
        self.permits.as_ref().map(|(permits, _)| permits.clone())
    }

    pub(crate) fn derivation(&self) -> Derivation {
        self.derivation.unwrap_or_default()
    }

    pub(crate) fn max_keys(&self) -> usize {
        let max_keys = self.max_keys.as_ref();
        let max_keys = max_keys.and_then(|max| max.base10_parse().ok());
        max_keys.unwrap_or(MAX_KEYS)
    }

    /// Returns whether an argument other than the key uses this name's value.
    pub(crate) fn use_name(&self, name: &Ident) -> bool {
        let is_for_lock = self.is_session() && self.conn.is_none() && name == "conn";
        is_for_lock || self.mention(&name.to_string())
    }

    /// Returns whether an argument other than the key contains this name.
    pub(crate) fn mention(&self, name: &str) -> bool {
        let permits = self.permits.as_ref().map(|(_, written)| written);
        let value = self.at.as_ref().map(|at| &at.value);
        let expressions = [
            &self.on_held,
            &self.on_done,
            &self.err,
            &self.pool,
            &self.conn,
        ];
        let expressions = expressions.map(Option::as_ref).into_iter();
        let mut expressions = expressions.chain([permits, value]).flatten();
        expressions.any(|expression| mentions(expression, name))
    }

    /// Reports the argument of this name, if it was given.
    pub(crate) fn refuse(&self, name: &str, message: impl Display, errors: &mut Errors) {
        if let Some(span) = self.span(name) {
            errors.at(span, message);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.span(name).is_some()
    }

    pub(crate) fn span(&self, name: &str) -> Option<Span> {
        let mut given = self.given.iter();
        given
            .find(|(given, _)| given == name)
            .map(|(_, span)| *span)
    }

    fn note(&mut self, name: &str, span: Span) {
        self.given.push((name.to_owned(), span));
    }

    /// Reads arguments, of which only the known ones are accepted.
    pub(crate) fn parse(tokens: TokenStream, known: Known<'_>, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let arguments = separate(tokens, known, errors);
        let has_key = known.names.contains(&"key");
        let pair = key::unnamed_pair(&arguments).filter(|_| has_key);
        for argument in arguments {
            let mut tokens = argument.into_iter();
            let (name, equals) = (tokens.next(), tokens.next());
            if let Some(TokenTree::Literal(literal)) = &name
                && has_key
            {
                if args.has("keys") {
                    // The value of `keys` shows it.
                } else if let Some(pair) = &pair {
                    if !args.has("key") {
                        errors.at(literal.span(), pair);
                    }
                } else {
                    errors.at(literal.span(), format_args!("write `key = {literal}`"));
                }
                args.note("key", literal.span());
                continue;
            }
            let value: TokenStream = tokens.collect();
            if let Some(TokenTree::Ident(word)) = &name {
                let (word, span) = (word.to_string(), word.span());
                if argument::suggestion(&word) == Some("key") {
                    args.note("key", span);
                }
                // Also one that the macro does not have: a check can say what to write instead.
                args.note(&word, span);
            }
            let Some(name) = name_of(name, &value, known, errors) else {
                continue;
            };
            // These two can be followed by parentheses instead of `=`.
            let value = match name.to_string().as_str() {
                "with" => Some(equals.into_iter().collect()),
                "allow_overlap" => {
                    let overlap = overlap(equals.as_ref(), &name, errors);
                    args.allow_overlap.extend(overlap);
                    None
                }
                _ => value_of(&name, equals.as_ref(), value, errors),
            };
            if let Some(value) = value {
                let (name, is_of_lease) = (&name, known.attribute == Some(Attribute::Lease));
                let argument = Argument {
                    name,
                    value,
                    errors,
                };
                args.read(argument, is_of_lease);
            }
        }
        if known.names.contains(&"guards") && !args.has("guards") {
            // Without a table there is nothing that the lock could be redundant to.
            let message = "`allow_redundant` has no effect without `guards`: name the tables there, or leave `allow_redundant` out";
            args.refuse("allow_redundant", message, errors);
        }
        args
    }

    fn read(&mut self, argument: Argument<'_>, is_of_lease: bool) {
        match argument.name.to_string().as_str() {
            "key" => argument.set(&mut self.keys, |value, _, errors| {
                let key = if is_of_lease {
                    lease_key(value, errors)
                } else {
                    key(value, errors)
                };
                key.map(|key| vec![key])
            }),
            "keys" => argument.set(&mut self.keys, keys),
            "with" => argument.set(&mut self.with, with),
            "name" => argument.set(&mut self.name, label),
            "component" => argument.set(&mut self.component, string),
            "allow_ambiguous" => argument.set(&mut self.allow_ambiguous, reason),
            "derivation" => {
                argument.set_choice(&mut self.derivation, Derivation::ALL, Derivation::name);
            }
            "guards" => argument.set(&mut self.guards, tables),
            "allow_redundant" => argument.set(&mut self.allow_redundant, reason),
            "pool" => argument.set_expression(&mut self.pool),
            "conn" => argument.set_expression(&mut self.conn),
            "wait" => argument.set(&mut self.wait, wait),
            "on_held" => argument.set(&mut self.on_held, returned),
            "on_done" => argument.set(&mut self.on_done, returned),
            "err" => argument.set(&mut self.err, conversion),
            "handle" => argument.set(&mut self.handle, ident),
            "scope" => argument.set_choice(&mut self.scope, Scope::ALL, Scope::name),
            "mode" => argument.set_choice(&mut self.is_shared, [false, true], mode),
            "poll" => argument.set_time(&mut self.poll, &POLL),
            "poll_max" => argument.set_time(&mut self.poll_max, &POLL_MAX),
            "permits" => argument.set(&mut self.permits, permits),
            "max_hold" => argument.set_time(&mut self.max_hold, &MAX_HOLD),
            "isolation" => {
                argument.set_choice(&mut self.isolation, Isolation::ALL, Isolation::name);
            }
            "at" => argument.set(&mut self.at, at),
            "nested" => argument.set_choice(&mut self.refuses_nested, [false, true], nested),
            "queue" => argument.set(&mut self.queue, number),
            "max_keys" => argument.set(&mut self.max_keys, number),
            "ttl" => argument.set_time(&mut self.ttl, &TTL),
            "renew" => argument.set_time(&mut self.renew, &RENEW),
            "keep" => argument.set_time(&mut self.keep, &KEEP),
            "crate" => argument.set_expression(&mut self.krate),
            _ => argument.not_implemented(),
        }
    }
}

/// Splits the arguments, and reports a comma that is missing between two of them. The texts of
/// `keys = "a", "b"` stay together.
fn separate(tokens: TokenStream, known: Known<'_>, errors: &mut Errors) -> Vec<TokenStream> {
    const COMMA: &str = "write `,` between two arguments";
    let mut arguments: Vec<TokenStream> = Vec::new();
    for argument in split_at_commas(tokens) {
        let tokens: Vec<TokenTree> = argument.into_iter().collect();
        if let ([TokenTree::Literal(_)], Some(list)) = (tokens.as_slice(), arguments.last_mut())
            && key::is_list_of_texts(list)
        {
            list.extend(quote!(, #(#tokens)*));
            continue;
        }
        let mut start = 0;
        for (index, token) in tokens.iter().enumerate() {
            // After a name, `=` and a value: `key = "a" scope = "xact"`.
            let is_next = index > start + 2
                && matches!(token, TokenTree::Ident(name) if known.names.iter().any(|known| name == known))
                && tokens.get(index + 1).is_some_and(is_assignment)
                && matches!(
                    &tokens[index - 1],
                    TokenTree::Literal(_) | TokenTree::Ident(_) | TokenTree::Group(_)
                );
            let end = if is_punct(token, ';') {
                index + 1
            } else if is_next {
                index
            } else {
                continue;
            };
            errors.at(token.span(), COMMA);
            arguments.push(tokens[start..index].iter().cloned().collect());
            start = end;
        }
        arguments.push(tokens[start..].iter().cloned().collect());
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

/// Returns whether a token is `=`, and not the start of `==` or `=>`.
fn is_assignment(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '=' && punct.spacing() == Spacing::Alone)
}

/// The path of the runtime, if `crate` does not give another one.
pub(crate) fn runtime(krate: Option<&TokenStream>) -> TokenStream {
    krate.cloned().unwrap_or_else(|| quote!(::advisory_runtime))
}

#[cfg(test)]
mod tests {
    use super::argument::Known;
    use super::separate;
    use crate::attribute::Attribute;
    use crate::errors::Errors;
    use crate::written::{messages, rows};

    #[test]
    fn an_argument_has_the_message_that_helps_most() {
        for [args, wanted] in rows(
            r#"
            7, wait = "5s" => write `key = 7`
            7, 8 => write `key = (7, 8)`
            key "job" "more" => write `key = …`
            key = 7, lease => unknown argument `lease`: for a lease, write `#[advisory_lease(key = …, pool = …)]`
            key = 7, mode = &shared => `mode` must be `"exclusive"` or `"shared"`
            key = 7, wait = true => write `wait = "forever"`
            key = 7, wait = 1.5 => `1.5` is not a duration: expected `"never"`, `"forever"`, a time such as `"500ms"`, `"5s"`, `"2m"` or `"1h"`, or a `Duration`
            key = 7, wait = "2147483648ms" => `"2147483648ms"` is longer than the server's limit of 24 days: write `wait = "forever"`
            key = 7, wait = "2147483647ms" =>
            key = 7, wait = block =>
            key = 7, wait = self.wait =>
        "#,
        ) {
            let messages = messages(&format!(
                "#[advisory_lock({args})] async fn run(conn: &mut C) -> QueryResult<()> {{ Ok(()) }}"
            ));
            assert_eq!(messages.join(" and "), wanted, "{args}");
        }
    }

    #[test]
    fn a_missing_comma_is_found_and_the_arguments_after_it_are_read() {
        for [written, wanted, missing] in rows(
            r#"
            key = 7, wait = now() => key=7|wait=now() => 0
            key = "a" scope = "xact" => key="a"|scope="xact" => 1
            key = 7; wait = now() mode = x => key=7|wait=now()|mode=x => 2
            keys = "a", "b", wait = w => keys="a","b"|wait=w => 0
            key = a.wait == b => key=a.wait==b => 0
            err = |wait| wait = 7 => err=|wait|wait=7 => 0
            key = { mode = 7; mode } => key={mode=7;mode} => 0
        "#,
        ) {
            let mut errors = Errors::default();
            let tokens = written.parse().expect("tokens");
            let found = separate(tokens, Known::of(Attribute::Lock), &mut errors);
            let found = found.iter().map(|found| found.to_string().replace(' ', ""));
            assert_eq!(found.collect::<Vec<_>>().join("|"), wanted, "{written}");
            let messages = errors.into_compile_errors().to_string();
            let count = messages.matches("between two arguments").count();
            assert_eq!(count.to_string(), missing, "{written}");
        }
    }
}
