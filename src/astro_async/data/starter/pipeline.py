"""A pipeline to start from. Change it, and run it again: what is done stays done.

After a change inside a step that is complete, name it: `astro run latest --rerun STEP`.

astro ingest source     take in the files of a delivery, as a new run
astro run               run what that run has to do
astro show              see how it went
astro describe          see the steps below, and what waits for what
"""

from __future__ import annotations

import polars as pl

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, StepContext, StepFiles, expect

# What a delivery consists of: a name for each file, a pattern to find it by, its columns and their types.
# Without a schema, all columns are text.
pipeline = Pipeline(
    "orders",
    ingest_files=[
        IngestFileSpec(
            "orders",
            "orders*.csv",
            schema={
                "order_id": pl.Int64,
                "customer_id": pl.Int64,
                "product": pl.String,
                "quantity": pl.Int64,
                "price": pl.Decimal(10, 2),
                "status": pl.String,
            },
        ),
        IngestFileSpec(
            "customers",
            "customers*.csv",
            schema={"customer_id": pl.Int64, "name": pl.String, "country": pl.String},
        ),
    ],
)

# Which files a step works on. A read-only file cannot be changed by it, and readers run side by side.
ORDERS = AstroFileSpec("orders")
CUSTOMERS = AstroFileSpec("customers", readonly=True)

# A check sets the rows aside of which a rule is not true, each with the reason, and the others go on. To see
# it, make a quantity in source/orders.csv -1 and give the two commands again: `astro run` then ends with exit
# code 3, and says how to look at the row. Mend the rule or the file, and the row comes back to its place.
pipeline.add_check("Check orders", expect("the quantity is not above 0", pl.col("quantity") > 0), ORDERS)

# A filter removes rows on purpose; they are kept under filtered/ in the run's folder, and counted.
pipeline.add_filter("Drop cancelled", ORDERS, remove=pl.col("status") == "cancelled")


# A step is a function of a context and files. It may save its files in place, for the steps after it.
@pipeline.step(ORDERS, CUSTOMERS, depends_on="check-orders")
def add_amount(ctx: StepContext, files: StepFiles) -> None:
    """Add to each order what it comes to, and its customer's country."""
    orders, customers = files["orders"], files["customers"]
    amount = (pl.col("quantity") * pl.col("price")).alias("amount")
    countries = customers.scan().select("customer_id", "country")
    orders.save_in_place_lazy(
        orders.scan()
        .with_columns(amount)
        .join(countries, on="customer_id", how="left", maintain_order="left")
    )


# `depends_on` names earlier steps, by id or by function: this one waits until no order is set aside.
@pipeline.step(AstroFileSpec("orders", readonly=True), depends_on=add_amount)
def sum_up(ctx: StepContext, files: StepFiles) -> None:
    """Write a report beside the data, to processed/totals.parquet in the run's folder."""
    totals = files["orders"].load().group_by("country").agg(pl.col("amount").sum()).sort("country")
    files["orders"].save_to("processed", "totals.parquet", totals, activate=False)
    ctx.logger.info("%d countries", totals.height)
