"""The family of trace formats, and everything that it registers."""

from dagsim.family import Entry, Family

FAMILY = Family(
    "published traces, and logs of batch systems without a family of their own",
    adds={
        "readers": (
            Entry("acme", ".centres:Acme"),
            Entry("alibaba2017", ".alibaba2017:Alibaba2017"),
            Entry("alibaba2018", ".alibaba2018:Alibaba2018"),
            Entry("alibaba2025", ".alibaba2025:Alibaba2025"),
            Entry("alibaba2026", ".alibaba2026:Alibaba2026"),
            Entry("batsim", ".batsim_jobs:BatsimWorkload"),
            Entry("dax", ".dax:Dax"),
            Entry("eagle", ".centres:Eagle"),
            Entry("fdata", ".centres:Fdata"),
            Entry("flux", ".flux:Flux"),
            Entry("frontier", ".centres:FrontierJobs"),
            Entry("gavel", ".gavel:GavelTrace"),
            Entry("google2011", ".google2011:Google2011"),
            Entry("google2019", ".google2019:Google2019"),
            Entry("gridengine", ".gridengine:GridEngine"),
            Entry("helios", ".helios:Helios"),
            Entry("htcondor", ".htcondor:HtCondor"),
            Entry("itp", ".itp:Itp"),
            Entry("kestrel", ".centres:Kestrel"),
            Entry("lsf", ".lsf:Lsf"),
            Entry("openb2023", ".openb2023:Openb2023"),
            Entry("pai2020", ".pai2020:Pai2020"),
            Entry("philly", ".philly:Philly"),
            Entry("pipedream", ".pipedream:PipeDream"),
            Entry("pm100", ".centres:Pm100"),
            Entry("stg", ".stg:Stg"),
            Entry("swf", ".swf:Swf"),
            Entry("tiresias", ".tiresias:Tiresias"),
            Entry("tpch", ".tpch:Tpch"),
            Entry("wfcommons", ".wfcommons:WfCommons"),
        ),
        "writers": (
            Entry("batsim", ".writers:BATSIM"),
            Entry("openb2023", ".writers:OPENB2023"),
            Entry("stg", ".writers:STG"),
            Entry("swf", ".writers:SWF"),
            Entry("tiresias", ".writers:TIRESIAS"),
            Entry("wfcommons", ".writers:WFCOMMONS"),
        ),
    },
)
