"""Penguins: check every row, then sum up by species.

Run by `astro run` in this folder. Edit it and run again: what is done and still right stays.
"""

from __future__ import annotations

import polars as pl

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, StepContext, StepFiles, expect

MEASUREMENTS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]


class PenguinFile(AstroFileSpec):
    """The one file of this pipeline; steps name it by this class."""

    ingest_name = "penguins"


def sum_up(ctx: StepContext, files: StepFiles) -> None:
    """Write one row for each species, beside the data and without changing it."""
    penguins = files["penguins"]
    by_species = (
        penguins.load()
        .group_by("species")
        .agg(pl.len().alias("penguins"), pl.col("body_mass_g").mean().round(0).alias("mean_mass_g"))
        .sort("species")
    )
    penguins.save_to("processed", "species.parquet", by_species, activate=False)
    ctx.logger.info("%d species", by_species.height)


class Penguins(Pipeline):
    """What to take in, and what to do with it."""

    name = "penguins"
    ingest_files = (
        IngestFileSpec(
            "penguins",
            "penguins*.csv",
            schema={
                "species": pl.String,
                "island": pl.String,
                "bill_length_mm": pl.Float64,
                "bill_depth_mm": pl.Float64,
                "flipper_length_mm": pl.Int64,
                "body_mass_g": pl.Int64,
                "sex": pl.String,
                "year": pl.Int64,
            },
            null_values="NA",
        ),
    )

    def configure_steps(self) -> None:
        """Declare the steps, in order."""
        # Two penguins were never measured at all. Removed on purpose: counted, and kept under filtered/.
        self.add_filter(
            "Drop unmeasured", PenguinFile, remove=pl.all_horizontal(pl.col(MEASUREMENTS).is_null())
        )
        # Rows of which a rule is not true are set aside with its reason. The others go on.
        self.add_check(
            "Check measurements",
            [
                expect("a measurement is missing", pl.all_horizontal(pl.col(MEASUREMENTS).is_not_null())),
            ],
            PenguinFile,
        )
        # Sums over incomplete data would be wrong, so this step waits until nothing is set aside.
        self.add_step(
            "Sum up",
            sum_up,
            PenguinFile(readonly=True),
            depends_on="check-measurements",
        )


pipeline = Penguins()
