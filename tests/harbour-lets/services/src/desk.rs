//! Booking and cancelling a stay, with its payments.

use advisory_runtime::advisory_lock;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use lets_bookings::{bookings, settings, waiting_list};
use lets_domain::locks::RoomNight;
use lets_domain::{AccountId, BookingId, Cents, GuestId, NewStay};
use lets_payments::{accounts, deposits, invoices, vouchers};
use lets_store::{Error, Pool, Refusal, Result};

/// The account that pays, and the year of the invoice.
#[derive(Clone, Copy, Debug)]
pub struct Payer {
    pub account: AccountId,
    pub year: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    pub booking: BookingId,
    pub invoice: i32,
    pub due: Cents,
}

#[derive(Clone)]
pub struct Desk {
    pub pool: Pool,
    /// Our own account.
    pub till: AccountId,
}

impl Desk {
    /// Books, takes the deposit and writes the invoice, or does nothing at all.
    pub async fn book(
        &self,
        stay: &NewStay,
        payer: Payer,
        voucher: Option<&str>,
    ) -> Result<Confirmation> {
        let mut conn = self.pool.get().await?;
        conn.transaction(async |conn| self.book_on(conn, stay, payer, voucher).await)
            .await
    }

    async fn book_on(
        &self,
        conn: &mut AsyncPgConnection,
        stay: &NewStay,
        payer: Payer,
        voucher: Option<&str>,
    ) -> Result<Confirmation> {
        let booking = bookings::book(conn, stay).await?;
        self.charge(conn, stay, booking, payer, voucher).await
    }

    /// The money of a stay that is booked.
    async fn charge(
        &self,
        conn: &mut AsyncPgConnection,
        stay: &NewStay,
        booking: BookingId,
        payer: Payer,
        voucher: Option<&str>,
    ) -> Result<Confirmation> {
        let percent = settings::deposit::get(conn, stay.tenant).await?;
        let deposit = stay.price.percent(percent);
        deposits::take(conn, booking, deposit).await?;
        accounts::transfer(conn, payer.account, self.till, deposit, "deposit").await?;
        let off = match voucher {
            Some(code) => vouchers::redeem(conn, code, stay.guest).await?,
            None => Cents::ZERO,
        };
        let due = Cents((stay.price - off).0.max(0));
        let invoice = invoices::write(conn, stay.tenant, payer.year, booking, due).await?;
        Ok(Confirmation {
            booking,
            invoice,
            due,
        })
    }

    /// Books several rooms for the same nights, all or none: a family's two rooms.
    ///
    /// All nights of all rooms in one step, so that two families who want the same rooms do not wait for each other; and one
    /// payment behind them, since who holds an account and waits for a night meets who holds the night and waits for the account.
    #[advisory_lock(
        keys = nights_of(stays),
        conn = self.pool.get().await?,
        wait = "10s",
        max_keys = 200,
        component = "desk"
    )]
    pub async fn book_together(
        &self,
        stays: &[NewStay],
        payer: Payer,
    ) -> Result<(Vec<BookingId>, Confirmation)> {
        let mut booked = Vec::new();
        for stay in stays {
            booked.push(bookings::book(conn, stay).await?);
        }
        let (Some(first), Some(booking)) = (stays.first(), booked.first()) else {
            return Err(Refusal::Invalid.into());
        };
        let whole = NewStay {
            price: stays.iter().map(|stay| stay.price).sum(),
            ..first.clone()
        };
        let confirmed = self.charge(conn, &whole, *booking, payer, None).await?;
        Ok((booked, confirmed))
    }

    /// Cancels, gives the deposit back, and tells who waits for the first night.
    pub async fn cancel(&self, booking: BookingId, payer: Payer) -> Result<Option<GuestId>> {
        let mut conn = self.pool.get().await?;
        conn.transaction(async |conn| {
            let found = bookings::find(conn, booking).await?;
            bookings::cancel(conn, booking).await?;
            let deposit = deposits::settle(conn, booking, deposits::Settlement::GivenBack).await;
            match deposit {
                Ok(deposit) => {
                    accounts::transfer(conn, self.till, payer.account, deposit, "cancelled")
                        .await?;
                }
                Err(Error::Refused(Refusal::AlreadyDone)) => {}
                Err(error) => return Err(error),
            }
            waiting_list::next(conn, found.room(), found.arrives).await
        })
        .await
    }
}

fn nights_of(stays: &[NewStay]) -> impl Iterator<Item = RoomNight> {
    stays.iter().flat_map(|stay| {
        let nights = stay.nights.each();
        nights.map(|night| RoomNight {
            room: stay.room,
            night,
        })
    })
}
