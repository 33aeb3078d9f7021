//! The blocking connection in a value of a type that the attribute cannot see, such as
//! `type Conn<'a> = &'a mut PgConnection`.
//!
//! Diesel runs no query on a reference to such a reference, so the guard and the body get the
//! connection itself. Method resolution finds it, as in `convert`: `conn` on [`ConnectionIn`] needs
//! a connection; for another value the compiler looks at what it dereferences to.
#![allow(clippy::mut_mut, reason = "a parameter can be such a reference")]

use crate::blocking::Connection;
use diesel::PgConnection;
use std::ops::{Deref, DerefMut};

/// A connection.
pub struct ConnectionIn<T>(Reference<T>);

/// A reference to a connection.
pub struct Reference<T>(SecondReference<T>);

/// A reference to a reference: a parameter `conn: &mut Conn<'_>`.
pub struct SecondReference<T>(OtherReference<T>);

/// A reference to something else, which the compile error names.
pub struct OtherReference<T>(Other<T>);

/// Something else.
pub struct Other<T>(T);

impl<T> ConnectionIn<T> {
    pub const fn new(value: T) -> Self {
        Self(Reference(SecondReference(OtherReference(Other(value)))))
    }
}

impl<C: Connection> ConnectionIn<C> {
    pub fn conn(&mut self) -> &mut C {
        &mut self.0.0.0.0.0
    }
}

impl<C: Connection> Reference<&mut C> {
    pub fn conn(&mut self) -> &mut C {
        self.0.0.0.0
    }
}

impl<C: Connection> SecondReference<&mut &mut C> {
    pub fn conn(&mut self) -> &mut C {
        self.0.0.0
    }
}

impl<T> OtherReference<&mut T> {
    pub fn conn(&mut self) -> &mut T {
        self.0.0
    }
}

impl<T> Other<T> {
    pub fn conn(&mut self) -> &mut T {
        &mut self.0
    }
}

macro_rules! otherwise {
    ($($one:ident => $next:ident,)*) => { $(
        impl<T> Deref for $one<T> {
            type Target = $next<T>;

            fn deref(&self) -> &$next<T> {
                &self.0
            }
        }

        impl<T> DerefMut for $one<T> {
            fn deref_mut(&mut self) -> &mut $next<T> {
                &mut self.0
            }
        }
    )* };
}
otherwise! {
    ConnectionIn => Reference,
    Reference => SecondReference,
    SecondReference => OtherReference,
    OtherReference => Other,
}

/// A field with a connection, or with a reference to one. The parameter is inferred: it keeps the
/// implementations apart.
#[diagnostic::on_unimplemented(
    message = "an advisory lock can't be taken on `{Self}`",
    label = "expected `PgConnection` or a pooled connection of it"
)]
pub trait Field<Kind> {
    fn pg(&mut self) -> &mut PgConnection;
}

pub struct Owned;

pub struct Referenced;

impl<C: Connection> Field<Owned> for C {
    fn pg(&mut self) -> &mut PgConnection {
        Connection::pg(self)
    }
}

impl<C: Connection> Field<Referenced> for &mut C {
    fn pg(&mut self) -> &mut PgConnection {
        Connection::pg(&mut **self)
    }
}

/// Like [`pg`](super::pg), for a field.
pub fn field<F: Field<Kind>, Kind>(field: &mut F) -> &mut PgConnection {
    field.pg()
}
