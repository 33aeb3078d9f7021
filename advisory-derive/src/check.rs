//! What is wrong with a site whose parts are each well-formed.

use crate::errors::Errors;
use crate::site::{Connection, Site};
use advisory_pattern::Placeholder;
use proc_macro2::Ident;

pub(crate) fn check(site: &Site, errors: &mut Errors) {
    for placeholder in site.pattern.placeholders() {
        if let Some(odd) = placeholder.path.iter().find(|step| !is_step(step)) {
            errors.at(
                site.key.span(),
                format_args!("`<{}>`: `{odd}` is no name", placeholder.source),
            );
            continue;
        }
        known(site, placeholder, errors);
        let shape = site.shape_of_value(placeholder);
        for filter in placeholder.misfits(|_| shape) {
            errors.at(
                site.key.span(),
                format_args!("`<{}>`: {}", placeholder.source, filter.refusal(shape)),
            );
        }
        if placeholder.slice {
            errors.at(
                site.key.span(),
                format_args!("`<{}>` would take several locks, and this version takes one: name a single value", placeholder.source),
            );
        }
    }
    unambiguous(site, errors);
    same_connection(site, errors);
}

/// `self`, a name, or the index of a tuple's field.
fn is_step(step: &str) -> bool {
    step == "self" || step.parse::<usize>().is_ok() || syn::parse_str::<Ident>(step).is_ok()
}

/// A placeholder starts with something that a parameter binds.
fn known(site: &Site, placeholder: &Placeholder, errors: &mut Errors) {
    let Some(root) = placeholder.path.first() else {
        return;
    };
    let function = &site.function;
    if root == "self" {
        if function.receiver.is_none() {
            errors.at(
                site.key.span(),
                format_args!(
                    "`<{}>`: `{}` has no `self`",
                    placeholder.source, function.name
                ),
            );
        }
        return;
    }
    let names: Vec<String> = function
        .params
        .iter()
        .flat_map(|param| &param.names)
        .map(Ident::to_string)
        .collect();
    if names.iter().any(|name| name == root) {
        return;
    }
    let hint = advisory_pattern::closest(root, names.iter().map(String::as_str)).map_or_else(
        || {
            let others: Vec<_> = names
                .iter()
                .filter(|name| *name != "conn")
                .map(|name| format!("`<{name}>`"))
                .collect();
            if others.is_empty() {
                "it has no parameter for a key".to_owned()
            } else {
                format!("expected {}", others.join(", "))
            }
        },
        |close| format!("did you mean `<{close}>`?"),
    );
    errors.at(
        site.key.span(),
        format_args!(
            "`<{}>`: `{root}` is no parameter of `{}`; {hint}",
            placeholder.source, function.name
        ),
    );
}

/// Two argument lists never render one key.
fn unambiguous(site: &Site, errors: &mut Errors) {
    let language = site.pattern.language(|placeholder| site.shape(placeholder));
    if let Some(ambiguity) = advisory_pattern::ambiguity(&site.pattern, &language) {
        errors.at(
            site.key.span(),
            format_args!(
                "different values can render one key: {ambiguity}; {}",
                ambiguity.help
            ),
        );
    }
}

/// The body runs on the connection that holds the lock, unless it takes another under the same name.
fn same_connection(site: &Site, errors: &mut Errors) {
    let name = match &site.connection {
        Connection::Place { root, fields, .. } if fields.is_empty() => root.to_string(),
        Connection::Place { .. } => return,
        Connection::Expression(_) => "conn".to_owned(),
    };
    let Some(binding) = site.function.body_binding(&name) else {
        return;
    };
    if binding.mentions_itself {
        return;
    }
    let from = binding.value;
    let instead = match &site.connection {
        Connection::Expression(_) => {
            "remove this line, the attribute has taken the connection".to_owned()
        }
        Connection::Place { .. } => {
            format!(
                "remove this line, or write `conn = {from}` into the attribute in place of the parameter"
            )
        }
    };
    errors.at(
        binding.span,
        format_args!(
            "this `{name}` does not hold the lock, the one from before the body does: {instead}"
        ),
    );
}
