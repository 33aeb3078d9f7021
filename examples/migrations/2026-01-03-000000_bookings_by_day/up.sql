CREATE INDEX CONCURRENTLY booking_by_day ON booking (day);
