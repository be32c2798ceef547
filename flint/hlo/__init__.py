"""HLO protos into op records, the same that StableHLO is read into."""
